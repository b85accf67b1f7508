#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pareprop::io {

// What is found when tensors of a file do not fit those of a network, for one message. Of a file
// that is of another network altogether, it gives numbers and a few examples.
class Misfits {
 public:
  enum class Kind { missing, not_expected, different };

  // `what` is a whole sentence: "blocks.0.f.bias is missing".
  void add(Kind kind, std::string what) { all_.emplace_back(kind, std::move(what)); }
  bool empty() const { return all_.empty(); }

  // To follow "... does not fit": ":", then a line for each; or ": 12 tensors are missing, ...",
  // five lines, and how many more there are.
  std::string text() const;

 private:
  std::vector<std::pair<Kind, std::string>> all_;
};

}  // namespace pareprop::io
