#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pareprop::io {

// Deeper files are refused: nothing that is read needs it, and code that walks through a value
// calls itself for each level.
inline constexpr int kDeepestJson = 100;

// JSON out of a file that somebody else may have written. Every string in it is UTF-8, so that
// dump() does not throw. Throws std::invalid_argument that begins with what `source` calls the text
// and the place in it: "run/config.json: line 3, column 5: ...". Columns count characters.
//
// Not for the installed package's users: they need not have nlohmann's headers.
nlohmann::json parse_json(std::string_view text, std::string_view source);

// "line 3, column 5": where a key of the outermost object stands in a text that parse_json() took.
// Empty: it is not found there as it is written in `key`.
std::string place_of_key(std::string_view text, std::string_view key);

// What nlohmann's library says of a value that is not what was asked for ("key 'step' not found"),
// without the name of its exception.
std::string json_fault(const std::exception& error);

}  // namespace pareprop::io
