#include "pareprop/data/text/masked_text.h"

#include "pareprop/data/text/unicode_class.h"
#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

std::string_view without_trailing_space(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const text::Utf8Character character = text::character_at(text, at);
    if (character.bytes == 0) return text;  // encode() says what is wrong with it
    at += character.bytes;
    if (unicode_class(character.code) != UnicodeClass::space) end = at;
  }
  return text.substr(0, end);
}

}  // namespace

std::vector<std::int64_t> encode_masked(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int64_t> ids{tokenizer.start()};
  const auto add = [&](std::string_view part) {
    for (const TokenId id : tokenizer.encode(part)) ids.push_back(id);
  };
  for (auto mask = text.find(kMaskText); mask != text.npos; mask = text.find(kMaskText)) {
    add(without_trailing_space(text.substr(0, mask)));
    ids.push_back(tokenizer.mask());
    text.remove_prefix(mask + kMaskText.size());
  }
  add(text);
  ids.push_back(tokenizer.end());
  return ids;
}

}  // namespace pareprop::data
