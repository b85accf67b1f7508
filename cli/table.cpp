#include "cli/table.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/text/escape.h"

namespace pareprop::cli {
namespace {

constexpr std::size_t kGap = 2;

bool begins_character(char c) { return (c & 0xC0) != 0x80; }

std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string padded(const std::string& cell, std::size_t width, Align align) {
  const std::string space(width - columns_of(cell), ' ');
  return align == Align::right ? space + cell : cell + space;
}

}  // namespace

std::string first_columns(const std::string& text, std::size_t count) {
  std::size_t end = 0, columns = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && columns++ == count) break;
  }
  return text.substr(0, end);
}

namespace {

// Both ends of long text: names of files differ in the last letters.
std::string shortened(const std::string& text, std::size_t most) {
  constexpr std::string_view kBetween = "...";
  const std::size_t columns = columns_of(text);
  if (most == 0 || columns <= most) return text;
  const std::size_t ends = most - kBetween.size(), first = ends / 2;
  const std::size_t tail = first_columns(text, columns - (ends - first)).size();
  return first_columns(text, first).append(kBetween) + text.substr(tail);
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::size_t length = end - begin;
    const bool first = out.empty() || out.back() == '\n';
    if (!first && column + 1 + length > width) {
      out += '\n';
      column = 0;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out.append(text, begin, length);
    column += length;
    if (end < text.size() && text[end] == '\n') {
      out += '\n';
      column = 0;
    }
    begin = end + 1;
  }
  return out;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::invalid_argument("table: expected " + std::to_string(columns_.size()) +
                                " cells, got " + std::to_string(cells.size()));
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    cells[i] = shortened(text::printable(cells[i]), columns_[i].most);
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::string> titles, rule;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_of(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, columns_of(row[i]));
    titles.push_back(columns_[i].title);
    rule.emplace_back(width, '-');
    widths.push_back(width);
  }
  std::string text;
  auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line.append(kGap, ' ');
      line += padded(cells[i], widths[i], columns_[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line(titles);
  add_line(rule);
  for (const auto& row : rows_) add_line(row);
  return text;
}

}  // namespace pareprop::cli
