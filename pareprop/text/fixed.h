#pragma once

#include <string>

namespace pareprop::text {

// With `decimals` digits after the point, in every locale.
std::string fixed(double value, int decimals);

// With `digits` significant ones at most: "0.25", "1234", "3e-5".
std::string short_number(double value, int digits);

}  // namespace pareprop::text
