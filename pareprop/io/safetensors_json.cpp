#include "pareprop/io/safetensors_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "pareprop/text/escape.h"
#include "pareprop/text/utf8.h"

namespace pareprop::io {
namespace {

constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

std::string tensor(std::string_view name) { return "tensor " + text::in_quotes(name); }

SafetensorsDtype dtype_named(const std::string& text, const std::string& of) {
  std::string supported;
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::i64); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    if (name(dtype) == text) return dtype;
    supported += (i == 0 ? "" : ", ") + std::string(name(dtype));
  }
  fail(tensor(of) + " has dtype " + text::in_quotes(text) +
       ", which is not supported; expected one of " + supported +
       ". Convert the tensor before saving it");
}

// Takes the JSON as it is read. A tree of values would lose the names that stand twice, and would
// be built to its full depth before anything is checked.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsJson take() { return std::move(result_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("a boolean"); }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ != Where::list) unexpected("a number");
    if (value > kLargest) not_a_size(std::to_string(value));
    if (field_ == "shape") {
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (count_ < 2) {
      (count_ == 0 ? entry_.begin : entry_.end) = value;
    }
    ++count_;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    if (where_ != Where::list) unexpected("a number");
    not_a_size(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    if (where_ != Where::list) unexpected("a number");
    not_a_size(text::in_quotes(text));
  }

  bool string(string_t& value) override {
    if (where_ == Where::metadata) {
      result_.metadata.emplace(field_, std::move(value));
    } else if (where_ == Where::tensor && field_ == "dtype") {
      entry_.dtype = dtype_named(value, entry_.name);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (where_ == Where::start) {
      where_ = Where::top;
    } else if (where_ == Where::top) {
      where_ = entry_.name == kMetadataKey ? Where::metadata : Where::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool end_object() override {
    if (where_ == Where::tensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) fail(tensor(entry_.name) + " has no " + field);
      }
      result_.tensors.push_back(std::move(entry_));
    }
    where_ = Where::top;
    fields_.clear();
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (where_ != Where::tensor || field_ == "dtype") unexpected("an array");
    where_ = Where::list;
    count_ = 0;
    return true;
  }
  bool end_array() override {
    if (field_ == "data_offsets" && count_ != 2) {
      fail(tensor(entry_.name) + ": data_offsets has " + std::to_string(count_) +
           " numbers, expected two, the begin and the end");
    }
    where_ = Where::tensor;
    return true;
  }

  bool key(string_t& value) override {
    if (where_ == Where::top) {
      if (!names_.insert(value).second)
        fail(text::in_quotes(value) + " appears twice in the header");
      entry_ = SafetensorsEntry{};
      entry_.name = std::move(value);
      return true;
    }
    field_ = std::move(value);
    if (where_ == Where::tensor && field_ != "dtype" && field_ != "shape" &&
        field_ != "data_offsets") {
      fail(tensor(entry_.name) + " has a field " + text::in_quotes(field_) +
           ", expected only dtype, shape and data_offsets");
    }
    if (!fields_.insert(field_).second) {
      fail(text::in_quotes(field_) + " appears twice in " +
           (where_ == Where::metadata ? std::string(kMetadataKey) : tensor(entry_.name)));
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail("the header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Where { start, top, metadata, tensor, list };

  [[noreturn]] void unexpected(const std::string& what) const {
    switch (where_) {
      case Where::start:
        fail("the header is " + what + ", expected an object");
      case Where::top:
        if (entry_.name == kMetadataKey) {
          fail("__metadata__ is " + what + ", expected an object of strings");
        }
        fail(tensor(entry_.name) + " is " + what +
             ", expected an object with dtype, shape and data_offsets");
      case Where::metadata:
        fail("__metadata__: " + text::in_quotes(field_) + " is " + what + ", expected a string");
      case Where::tensor:
        fail(tensor(entry_.name) + ": " + field_ + " is " + what + ", expected " +
             (field_ == "dtype" ? "a string" : "an array of integers"));
      case Where::list:
        fail(element() + " is " + what + ", expected an integer");
    }
    fail("unreachable");
  }
  [[noreturn]] void not_a_size(const std::string& value) const {
    fail(element() + " is " + value + ", expected an integer from 0 to " +
         std::to_string(kLargest));
  }
  std::string element() const {
    return tensor(entry_.name) + ": " + field_ + "[" + std::to_string(count_) + "]";
  }

  SafetensorsJson result_;
  Where where_ = Where::start;
  SafetensorsEntry entry_;  // the one being read; at the top only its name
  std::string field_;       // the last key inside it
  std::uint64_t count_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
};

std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

template <class Numbers>
std::string json_list(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return "[" + text + "]";
}

}  // namespace

SafetensorsJson parse_safetensors_json(std::string_view text) {
  const std::size_t ill_formed = text::first_ill_formed(text);
  if (ill_formed < text.size()) {
    fail("the header is not UTF-8 at byte " + std::to_string(ill_formed));
  }
  // The parser would take a zero for the end of the text, and skip a byte order mark.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    fail("the header is not valid JSON: byte " + std::to_string(zero) + " is zero");
  }
  if (text.empty()) fail("the header is empty, expected a JSON object");
  if (text.front() != '{') {
    fail("the header starts with " + text::in_quotes(text.substr(0, 1)) +
         ", expected a JSON object: '{'");
  }
  Reader reader;
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

std::string format_safetensors_json(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto comma = [&text] { text += text.size() > 1 ? "," : ""; };
  if (!header.metadata.empty()) {
    text += json_string(std::string(kMetadataKey)) + ":{";
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      text +=
          (std::exchange(first, false) ? "" : ",") + json_string(key) + ":" + json_string(value);
    }
    text += "}";
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    comma();
    text += json_string(entry.name) + R"(:{"dtype":")" + std::string(name(entry.dtype)) +
            R"(","shape":)" + json_list(entry.shape) + R"(,"data_offsets":)" +
            json_list(std::vector{entry.begin, entry.end}) + "}";
  }
  return text + "}";
}

}  // namespace pareprop::io
