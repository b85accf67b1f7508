#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/io/file_descriptor.h"
#include "pareprop/sweep/machine.h"
#include "pareprop/sweep/result_row.h"

namespace pareprop::sweep {

// What a file of JSON lines holds: a header, then rows.
struct Results {
  Machine machine = {};
  std::string date = {};  // when the file was begun
  std::vector<ResultRow> rows = {};
  bool torn = false;  // the last line was not written to its end, and was left out
};

// Throws std::runtime_error when the file cannot be read, std::invalid_argument when it is empty,
// of another program or version, or has a line that is no row.
Results read_results(const std::filesystem::path& path);

// Results that grow case by case. Whoever is stopped loses the case that was under way, no more.
class ResultsFile {
 public:
  // Makes the file, or goes on with it; a torn last line is cut off. Throws std::invalid_argument
  // as read_results does, also for results of another machine and where another process writes;
  // std::system_error when it cannot be written. What is not ours is left as it is.
  explicit ResultsFile(const std::filesystem::path& path, const Machine& machine = this_machine());

  // Those that are in the file, in their order.
  const std::vector<ResultRow>& rows() const { return results_.rows; }

  // Reaches the file before it returns. Throws std::system_error.
  void append(const std::vector<ResultRow>& rows);

 private:
  void write(std::string_view text);
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  io::FileDescriptor file_;
  Results results_;
};

}  // namespace pareprop::sweep
