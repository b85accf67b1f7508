#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::text {

// Whether `pattern` stands for `text`. A `*` in it stands for any characters, also for none.
bool fits(std::string_view pattern, std::string_view text);

// Of the texts that are known, those (at most `most`) of which the fewest single characters have to
// be changed so that the pattern fits, the nearest first.
std::vector<std::string> nearest_to_pattern(std::string_view pattern,
                                            const std::vector<std::string>& known,
                                            std::size_t most);

}  // namespace pareprop::text
