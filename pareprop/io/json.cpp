#include "pareprop/io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "pareprop/io/utf8.h"

namespace pareprop::io {
namespace {

using nlohmann::json;

// "line 3, column 5".
std::string place(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::string_view in_line = before.substr(before.rfind('\n') + 1);
  const auto starts_character = [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  };
  const auto column = 1 + std::count_if(in_line.begin(), in_line.end(), starts_character);
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

class Source {
 public:
  Source(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument(std::string(name_) + ": " + why);
  }

  [[noreturn]] void fail_at(std::size_t byte, const std::string& why) const {
    fail(place(text_, byte) + ": " + why);
  }

 private:
  std::string_view text_, name_;
};

void check_depth(std::string_view text, const Source& source) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) {
        source.fail_at(
            at, "lists and objects are nested more than " + std::to_string(kDeepestJson) + " deep");
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

// Where the parser stops: json::parse() does not say so of numbers that are too large.
struct FirstFault : nlohmann::json_sax<json> {
  std::size_t begin = 0;
  std::string token;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t end, const std::string& last,
                   const nlohmann::detail::exception&) override {
    token = last.substr(0, 40);
    begin = end - std::min(end, last.size());
    return false;
  }
};

// "[json.exception...] parse error at line 1, column 2: syntax error while parsing value - invalid
// literal; last read: '{a'; expected ..." without what is said already.
std::string reason(const json::parse_error& error) {
  std::string what = error.what();
  for (const std::string_view before : {": ", " - "}) {
    if (const auto at = what.find(before); at != std::string::npos) {
      what.erase(0, at + before.size());
    }
  }
  return printable(what);
}

}  // namespace

json parse_json(std::string_view text, std::string_view name) {
  const Source source(text, name);
  if (const std::size_t at = first_ill_formed(text); at < text.size()) {
    source.fail_at(at, "the text is not UTF-8");
  }
  // The parser would take it for the end of the text.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    source.fail_at(at, "there is a zero byte; expected JSON");
  }
  check_depth(text, source);
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    source.fail_at(std::max<std::size_t>(error.byte, 1) - 1, "expected JSON: " + reason(error));
  } catch (const json::out_of_range&) {
    FirstFault fault;
    json::sax_parse(text.begin(), text.end(), &fault);
    source.fail_at(fault.begin, "a number is too large: '" + printable(fault.token) + "'");
  }
}

std::string place_of_key(std::string_view text, std::string_view key) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c != '"') continue;
    const std::size_t begin = at;
    while (++at < text.size() && text[at] != '"') at += text[at] == '\\' ? 1 : 0;
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + 1);
    const bool is_key = next != std::string_view::npos && text[next] == ':';
    if (depth == 1 && is_key && text.substr(begin + 1, at - begin - 1) == key) {
      return place(text, begin);
    }
  }
  return "";
}

std::string json_fault(const std::exception& error) {
  const std::string what = error.what();
  const auto end = what.starts_with("[json.exception") ? what.find("] ") : std::string::npos;
  return printable(end == std::string::npos ? what : what.substr(end + 2));
}

}  // namespace pareprop::io
