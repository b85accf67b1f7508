#include "pareprop/graph/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pareprop::text {
namespace {

// Characters that are inserted, left out, replaced, or exchanged with their neighbour.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
      }
    }
    before_last = std::exchange(last, row);
  }
  return last.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 100;  // nobody mistypes so much
  if (word.size() > kLongest) return "";
  std::string found;
  // Of two that are as near, one of the same length is the likelier.
  using Rank = std::pair<std::size_t, bool>;
  Rank least{std::max<std::size_t>(word.size() / 3, 1) + 1, false};
  for (const std::string& candidate : known) {
    const Rank rank{distance(word, candidate), candidate.size() != word.size()};
    if (rank >= least) continue;
    least = rank;
    found = candidate;
  }
  return found;
}

}  // namespace pareprop::text
