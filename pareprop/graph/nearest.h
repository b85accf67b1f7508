#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pareprop::text {

// Of the words that are known, the one that the fewest changes of single characters make of `word`.
// Empty: there is none, or none is near (more than a third of its letters would change).
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace pareprop::text
