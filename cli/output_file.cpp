#include "cli/output_file.h"

#include <ostream>

#include "pareprop/io/atomic_file.h"

namespace pareprop::cli {

void write_file(const std::filesystem::path& path, std::string_view text) {
  io::write_file(path, text);
}

void check_writable(const std::filesystem::path& path) {
  // Neither a file nor a folder: opening a pipe would wait for who reads it.
  std::error_code ignored;
  if (std::filesystem::is_other(path, ignored)) return;
  const io::AtomicFile not_committed(path);
}

JsonOutput::JsonOutput(std::string target, std::ostream& out)
    : target_(std::move(target)), out_(out) {
  if (!target_.empty() && !takes_stdout()) check_writable(target_);
}

void JsonOutput::write(const nlohmann::ordered_json& value) const {
  if (target_.empty()) return;
  constexpr int kIndent = 2;
  const std::string text =
      value.dump(kIndent, ' ', takes_stdout(), nlohmann::ordered_json::error_handler_t::replace) +
      "\n";
  if (takes_stdout()) {
    out_ << text << std::flush;
  } else {
    write_file(target_, text);
  }
}

}  // namespace pareprop::cli
