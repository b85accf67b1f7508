#pragma once

#include <string>
#include <string_view>

namespace pareprop::text {

// Escaped for the content of an XML element or an attribute in double quotes.
std::string xml(std::string_view text);

// For a terminal, whoever wrote the text: control characters, marks that change the direction of
// writing or cannot be seen, and bytes that are not UTF-8 become escapes such as \x1b or \u202e.
// Line breaks and tabs stay, or become \n and \t.
enum class Lines { kept, escaped };
std::string printable(std::string_view text, Lines lines = Lines::escaped);

// printable(), in single quotes, cut after about 100 bytes: a name from a broken file cannot fill a
// log.
std::string in_quotes(std::string_view text);

}  // namespace pareprop::text
