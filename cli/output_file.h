#pragma once

#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pareprop::cli {

// Writes the whole file or, throwing std::runtime_error, leaves what was there: the text goes to a
// temporary file beside it, which then takes its name. Devices and pipes are written to directly.
void write_file(const std::filesystem::path& path, std::string_view text);

// Throws what write_file would throw. To be called before the work, not after it.
void check_writable(const std::filesystem::path& path);

// Where --json goes.
class JsonOutput {
 public:
  // `target`: a file, "-" for `out`, or empty for nowhere. Throws when the file cannot be written.
  JsonOutput(std::string target, std::ostream& out);

  // Standard output is for JSON only.
  bool takes_stdout() const { return target_ == "-"; }

  // Numbers that are not finite become null. Standard output, which may be a terminal, gets ASCII.
  void write(const nlohmann::ordered_json& value) const;

 private:
  std::string target_;
  std::ostream& out_;
};

// The text of --json in --help.
inline constexpr const char* kJsonHelp =
    "Write the result as JSON to FILE; '-' writes only the JSON to standard output (default: none)";

}  // namespace pareprop::cli
