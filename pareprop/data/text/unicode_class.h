#pragma once

#include <cstdint>

namespace pareprop::data {

// What the tokenizer tells apart: general categories L and N, the property White_Space, the rest.
enum class UnicodeClass : std::uint8_t { letter, number, space, other };

// By the tables of Unicode 14; what was assigned later is `other`.
UnicodeClass unicode_class(char32_t code);

}  // namespace pareprop::data
