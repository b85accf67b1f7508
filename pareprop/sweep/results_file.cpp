#include "pareprop/sweep/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "pareprop/io/input_file.h"

namespace pareprop::sweep {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::string_view kBegins = "{\"pareprop\":\"bench\",";

std::string header_line(const Machine& machine) {
  const ordered_json header{{"pareprop", "bench"},    {"version", kVersion},
                            {"cpu", machine.cpu},     {"threads", machine.threads},
                            {"torch", machine.torch}, {"accelerator", machine.accelerator},
                            {"date", date_now()}};
  return header.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw std::invalid_argument("'" + path.string() + "' " + why);
}

void read_header(const fs::path& path, std::string_view line, Results& into) {
  const auto header = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || header.value("pareprop", ordered_json()) != "bench") {
    refuse(path, "is not a file of results: expected a first line that begins with " +
                     std::string(kBegins) + "...; give a file that 'pareprop bench --out' wrote");
  }
  const auto version = header.value("version", ordered_json());
  if (version != kVersion) {
    refuse(path, "has results of version " + version.dump() + ", expected " +
                     std::to_string(kVersion) + ": measure again into another file");
  }
  try {
    into.machine = {.cpu = header.at("cpu").get<std::string>(),
                    .threads = header.at("threads").get<int>(),
                    .torch = header.at("torch").get<std::string>(),
                    .accelerator = header.value("accelerator", std::string())};
    into.date = header.at("date").get<std::string>();
  } catch (const ordered_json::exception&) {
    refuse(path, "has an incomplete first line: expected cpu, threads, torch and date");
  }
}

struct Content {
  Results results;
  std::size_t good_bytes = 0;  // up to the end of the last whole line
};

Content content_of(const fs::path& path, std::string_view text) {
  Content out;
  for (int number = 1; out.good_bytes < text.size(); ++number) {
    const std::size_t end = text.find('\n', out.good_bytes);
    if (end == std::string_view::npos) {
      // Nobody else's: a file that does not begin as ours does must not be cut.
      if (number == 1 && kBegins.substr(0, text.size()) != text.substr(0, kBegins.size())) {
        read_header(path, text, out.results);
      }
      out.results.torn = true;
      break;
    }
    const std::string_view line = text.substr(out.good_bytes, end - out.good_bytes);
    if (number == 1) {
      read_header(path, line, out.results);
    } else {
      try {
        out.results.rows.push_back(parse_row(line));
      } catch (const std::invalid_argument& error) {
        refuse(path, "is damaged: line " + std::to_string(number) + ": " + error.what() +
                         "; remove that line, or measure again into another file");
      }
    }
    out.good_bytes = end + 1;
  }
  return out;
}

std::string text_of(const fs::path& path) {
  if (fs::is_directory(path)) refuse(path, "is a folder: give the name of a file");
  return io::read_text_file(path, {.most_bytes = io::kAnySize});
}

}  // namespace

Results read_results(const fs::path& path) {
  Content content = content_of(path, text_of(path));
  if (content.results.rows.empty()) {
    refuse(path, "holds no results: write some with 'pareprop bench --out' first");
  }
  return std::move(content.results);
}

ResultsFile::ResultsFile(const fs::path& path, const Machine& machine) : path_(path) {
  if (fs::is_directory(path)) refuse(path, "is a folder: give the name of a file");
  file_ = io::FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail();
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail();
    refuse(path,
           "is being written by another process: wait until that process ends, or choose another "
           "file (--out)");
  }
  Content content = content_of(path, text_of(path));
  results_ = std::move(content.results);
  if (content.good_bytes > 0 && !(results_.machine == machine)) {
    refuse(path, "has results of another machine (" + describe(results_.machine) +
                     "; this one is " + describe(machine) +
                     "), and results of two machines cannot be mixed: choose another file (--out)");
  }
  if (results_.torn && ftruncate(file_.get(), static_cast<off_t>(content.good_bytes)) != 0) fail();
  if (content.good_bytes == 0) write(header_line(machine));
}

void ResultsFile::append(const std::vector<ResultRow>& rows) {
  std::string lines;
  for (const ResultRow& row : rows) lines += to_json(row) + "\n";
  write(lines);
  results_.rows.insert(results_.rows.end(), rows.begin(), rows.end());
}

void ResultsFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void ResultsFile::fail() const {
  throw std::system_error(errno, std::generic_category(),
                          "cannot write the results '" + path_.string() + "'");
}

}  // namespace pareprop::sweep
