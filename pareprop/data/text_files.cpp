#include "pareprop/data/text_files.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/io/mapped_file.h"
#include "pareprop/io/utf8.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> text_paths(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().extension() == ".txt") {
      paths.push_back(entry.path());
    }
  }
  if (paths.empty()) {
    throw std::invalid_argument("text: the folder '" + path.string() +
                                "' has no file whose name ends in .txt");
  }
  // The system lists them in any order.
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

TextFile checked_text(std::string name, std::string_view bytes) {
  if (const std::size_t at = io::first_ill_formed(bytes); at < bytes.size()) {
    const auto line =
        1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw std::invalid_argument("text: '" + name + "' is not UTF-8: line " + std::to_string(line) +
                                ", byte " + std::to_string(at) +
                                " of the file; convert it, for example with iconv");
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return {std::move(name), std::string(bytes)};
}

std::vector<TextFile> read_text_files(const fs::path& path) {
  std::vector<TextFile> files;
  bool is_empty = true;
  for (const fs::path& file : text_paths(path)) {
    const io::MappedFile mapped(file);
    files.push_back(checked_text(
        file.string(), {reinterpret_cast<char*>(mapped.bytes().data()), mapped.bytes().size()}));
    is_empty = is_empty && files.back().text.empty();
  }
  if (is_empty) {
    throw std::invalid_argument("text: '" + path.string() + "' is empty; expected text in UTF-8");
  }
  return files;
}

std::size_t held_out_begin(std::string_view text) {
  const std::size_t earliest = text.size() - text.size() / 20;
  std::size_t line_start = text.size();
  bool after_blank = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t newline = text.find('\n', at);
    const std::size_t end = newline == std::string_view::npos ? text.size() : newline;
    const bool blank = is_blank(text.substr(at, end - at));
    if (at >= earliest && !blank) {
      if (after_blank) return at;
      line_start = std::min(line_start, at);
    }
    after_blank = blank;
    at = end + 1;
  }
  return line_start;
}

}  // namespace pareprop::data
