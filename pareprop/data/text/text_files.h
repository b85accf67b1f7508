#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::data {

struct TextFile {
  std::string name;  // for messages
  std::string text;  // UTF-8
};

// Throws std::invalid_argument that names the line and the byte of what is not UTF-8. A byte order
// mark at the start is left out.
TextFile checked_text(std::string name, std::string text);

struct TextFiles {
  std::vector<TextFile> files;
  std::vector<std::string> left_out = {};  // one line each: what of the folder could not be read
};

// A file of any name, or all *.txt of a folder and of the folders in it, in the order of their
// names. Throws std::invalid_argument when there is none, all are empty, or one is not UTF-8;
// std::runtime_error when a file that is named itself cannot be read.
TextFiles read_text_files(const std::filesystem::path& path);

// Where the part starts that is held out of training: the first paragraph (after an empty line)
// that starts in the last 5 % of the bytes, or else the first line that does. text.size(): nothing
// is.
std::size_t held_out_begin(std::string_view text);

// The same for text whose lines are too long for that: the first space in the last 5 % of the
// bytes, or else the first character there.
std::size_t held_out_word(std::string_view text);

}  // namespace pareprop::data
