#include "pareprop/data/text/text_files.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/data/list_files.h"
#include "pareprop/io/input_file.h"
#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

TextFile checked_text(std::string name, std::string text) {
  const std::string_view bytes = text;
  if (const std::size_t at = text::first_ill_formed(bytes); at < bytes.size()) {
    const auto line =
        1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw std::invalid_argument("text: '" + name + "' is not UTF-8: line " + std::to_string(line) +
                                ", byte " + std::to_string(at) +
                                " of the file; convert it, for example with iconv");
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (bytes.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return {std::move(name), std::move(text)};
}

TextFiles read_text_files(const fs::path& path) {
  const auto read = [](const fs::path& file) {
    return checked_text(file.string(), io::read_text_file(file, {.most_bytes = io::kAnySize}));
  };
  TextFiles all;
  if (!fs::is_directory(path)) {
    all.files.push_back(read(path));
  } else {
    FileList found =
        list_files(path, [](const fs::path& file) { return file.extension() == ".txt"; });
    all.left_out = std::move(found.left_out);
    for (const fs::path& file : found.files) {
      try {
        all.files.push_back(read(file));
      } catch (const std::runtime_error& error) {
        all.left_out.emplace_back(error.what());
      }
    }
    if (all.files.empty()) {
      throw std::invalid_argument(
          "text: the folder '" + path.string() +
          (all.left_out.empty() ? "' has no file whose name ends in .txt"
                                : "' has no text that can be read: " + all.left_out.front()));
    }
  }
  if (std::all_of(all.files.begin(), all.files.end(),
                  [](const TextFile& file) { return file.text.empty(); })) {
    throw std::invalid_argument("text: '" + path.string() + "' is empty; expected text in UTF-8");
  }
  return all;
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

std::size_t held_out_word(std::string_view text) {
  std::size_t at = text.size() - text.size() / 20;
  const auto is_inside_character = [&] {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (is_inside_character()) ++at;
  const std::size_t space = text.find(' ', at);
  return space == std::string_view::npos ? at : space;
}

}  // namespace pareprop::data
