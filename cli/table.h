#pragma once

#include <string>
#include <vector>

namespace pareprop::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
  std::size_t most = 0;  // columns that a cell may take, else its middle is left out; 0: any
};

// Columns that everything fits in which is not about names of the user's own.
inline constexpr std::size_t kPageWidth = 80;

// Words in lines of at most `width` columns, as far as they are no longer themselves; line breaks
// stay.
std::string wrapped(const std::string& text, std::size_t width = kPageWidth);

// As much of UTF-8 text as `count` columns show.
std::string first_columns(const std::string& text, std::size_t count);

// A table for people: a line of titles, a rule, a line per row; columns as wide as they need and
// two spaces apart. Cells are made printable, line breaks escaped. No spaces at the end of a line.
class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // Throws std::invalid_argument unless there is one cell per column.
  void add_row(std::vector<std::string> cells);

  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pareprop::cli
