#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pareprop::data {

// Byte-level tokenizers write every byte as one printable character: bytes that are printable in
// Latin-1 as themselves, the other 68 in their order as U+0100 and on (a space is U+0120).

// Any bytes, as UTF-8.
std::string in_byte_alphabet(std::string_view bytes);

// The way back; nothing when a character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view written);

}  // namespace pareprop::data
