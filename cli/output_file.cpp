#include "cli/output_file.h"

#include <unistd.h>

#include <fstream>
#include <ostream>
#include <stdexcept>

namespace pareprop::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw std::runtime_error("cannot write '" + path.string() + "': " + why);
}

// Neither a file nor a folder: a device or a pipe. Renaming over it would replace it.
bool is_special(const fs::path& path) {
  return fs::exists(path) && !fs::is_regular_file(path) && !fs::is_directory(path);
}

// The file that is meant, behind links.
fs::path resolved(const fs::path& path) {
  return fs::is_symlink(path) && fs::exists(path) ? fs::canonical(path) : path;
}

fs::path temporary_of(const fs::path& path) {
  return path.string() + ".partial-" + std::to_string(getpid());
}

void write_to(const fs::path& path, const fs::path& meant, std::string_view text) {
  const fs::path folder = meant.has_parent_path() ? meant.parent_path() : fs::path(".");
  if (fs::is_directory(meant)) fail(meant, "it is a folder; give the name of a file");
  if (!fs::is_directory(folder)) {
    fail(meant, "there is no folder '" + folder.string() + "'; create it first");
  }
  std::ofstream file(path, std::ios::binary);
  if (!file) fail(meant, "it could not be opened; choose a folder that can be written to");
  file << text;
  file.close();
  if (!file) fail(meant, "writing failed; is the disk full?");
}

struct RemoveFile {
  fs::path path;
  ~RemoveFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

}  // namespace

void write_file(const fs::path& path, std::string_view text) {
  if (is_special(path)) return write_to(path, path, text);
  const fs::path target = resolved(path);
  const RemoveFile cleanup{temporary_of(target)};
  write_to(cleanup.path, target, text);
  std::error_code error;
  fs::rename(cleanup.path, target, error);
  if (error) fail(path, error.message());
}

void check_writable(const fs::path& path) {
  if (is_special(path)) return;
  const fs::path target = resolved(path);
  const RemoveFile cleanup{temporary_of(target)};
  write_to(cleanup.path, target, "");
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
