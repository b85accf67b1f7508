#include "pareprop/text/wildcard.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pareprop::text {
namespace {

// Characters of `text` that are inserted, left out or replaced until the pattern fits.
std::size_t distance(std::string_view pattern, std::string_view text) {
  std::vector<std::size_t> last(text.size() + 1), row(text.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (const char c : pattern) {
    const bool any = c == '*';
    row[0] = last[0] + (any ? 0 : 1);
    for (std::size_t j = 0; j < text.size(); ++j) {
      row[j + 1] = any ? std::min(last[j + 1], row[j])
                       : std::min({last[j] + (c == text[j] ? 0 : 1), last[j + 1] + 1, row[j] + 1});
    }
    std::swap(last, row);
  }
  return last.back();
}

}  // namespace

bool fits(std::string_view pattern, std::string_view text) { return distance(pattern, text) == 0; }

std::vector<std::string> nearest_to_pattern(std::string_view pattern,
                                            const std::vector<std::string>& known,
                                            std::size_t most) {
  std::vector<std::pair<std::size_t, std::size_t>> ranks;  // distance, place
  for (std::size_t i = 0; i < known.size(); ++i) ranks.emplace_back(distance(pattern, known[i]), i);
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i) {
    found.push_back(known[ranks[i].second]);
  }
  return found;
}

}  // namespace pareprop::text
