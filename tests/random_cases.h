#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace pareprop::testing {

// How many random cases a test runs: PAREPROP_CASES=4 gives four times as many as `usual`.
inline int case_count(int usual) {
  const char* const factor = std::getenv("PAREPROP_CASES");
  return factor == nullptr ? usual : std::max(1, static_cast<int>(usual * std::stod(factor)));
}

// PAREPROP_SEED gives other cases.
inline std::uint64_t case_seed(std::uint64_t usual) {
  const char* const seed = std::getenv("PAREPROP_SEED");
  return seed == nullptr ? usual : std::stoull(seed);
}

}  // namespace pareprop::testing
