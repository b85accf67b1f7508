#include "pareprop/data/text/tokenizer.h"

#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "pareprop/data/text/byte_alphabet.h"
#include "pareprop/data/text/pre_tokenizer.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("tokenizer: " + what);
}

using Ids = std::unordered_map<std::string_view, TokenId>;

Ids ids_of(const std::vector<std::string>& tokens) {
  Ids ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto [other, is_new] = ids.emplace(tokens[i], static_cast<TokenId>(i));
    if (!is_new) {
      fail("the token " + text::in_quotes(tokens[i]) + " appears twice, with the ids " +
           std::to_string(other->second) + " and " + std::to_string(i));
    }
  }
  return ids;
}

TokenId id_of(const Ids& ids, std::string_view token, const std::string& what) {
  const auto found = ids.find(token);
  if (found == ids.end()) fail(what + " " + text::in_quotes(token) + ", which is not a token");
  return found->second;
}

}  // namespace

Tokenizer::Tokenizer(BpeTables tables)
    : tables_(std::move(tables)),
      is_special_(tables_.tokens.size()),
      bytes_(tables_.tokens.size()) {
  const Ids ids = ids_of(tables_.tokens);
  for (const std::string& name : tables_.special) {
    is_special_[static_cast<std::size_t>(id_of(ids, name, "a special token is"))] = true;
  }
  for (std::size_t i = 0; i < special_.size(); ++i) {
    const std::string_view name = kSpecialTokens[i];
    const auto found = ids.find(name);
    if (found == ids.end() || !is_special_[static_cast<std::size_t>(found->second)]) {
      fail("it has no special token " + text::in_quotes(name) +
           "; expected RoBERTa's <s> <pad> </s> <unk> <mask>. Train one on the text instead");
    }
    special_[i] = found->second;
  }

  of_byte_.fill(-1);
  for (std::size_t i = 0; i < tables_.tokens.size(); ++i) {
    if (is_special_[i]) continue;
    const auto bytes = from_byte_alphabet(tables_.tokens[i]);
    if (!bytes || bytes->empty()) {
      fail("the token " + text::in_quotes(tables_.tokens[i]) + " (id " + std::to_string(i) +
           ") is not written in the byte alphabet; expected a byte-level BPE");
    }
    bytes_[i] = *bytes;
    if (bytes->size() == 1) {
      of_byte_[static_cast<unsigned char>(bytes->front())] = static_cast<TokenId>(i);
    }
  }
  for (std::size_t byte = 0; byte < of_byte_.size(); ++byte) {
    if (of_byte_[byte] < 0) {
      fail("byte " + std::to_string(byte) + " has no token, " +
           text::in_quotes(in_byte_alphabet(std::string(1, static_cast<char>(byte)))) +
           "; expected all 256");
    }
  }
  for (const auto& [left, right] : tables_.merges) {
    const std::string name = text::in_quotes(left) + " + " + text::in_quotes(right);
    const TokenId parts[] = {id_of(ids, left, "the merge " + name + " names"),
                             id_of(ids, right, "the merge " + name + " names")};
    const TokenId result = id_of(ids, left + right, "the merge " + name + " makes");
    for (const TokenId id : {parts[0], parts[1], result}) {
      if (is_special(id)) fail("the merge " + name + " has a special token");
    }
    if (!merges_.add(parts[0], parts[1], result)) fail("the merge " + name + " appears twice");
  }
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  if (const std::size_t at = text::first_ill_formed(text); at < text.size()) {
    fail("the text is not UTF-8 at byte " + std::to_string(at));
  }
  std::vector<TokenId> result;
  // Where the tokens of a word stand that was seen before.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;
  std::vector<TokenId> tokens;
  for_each_word(text, [&](std::string_view word) {
    const auto [place, is_new] = seen.try_emplace(word);
    auto& [begin, count] = place->second;
    if (is_new) {
      tokens.clear();
      for (const char byte : word) tokens.push_back(of_byte_[static_cast<unsigned char>(byte)]);
      merges_.apply(tokens);
      begin = result.size();
      count = tokens.size();
      result.insert(result.end(), tokens.begin(), tokens.end());
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const TokenId token = result[begin + i];
        result.push_back(token);
      }
    }
  });
  return result;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id < 0 || id >= size()) {
      fail("there is no token " + std::to_string(id) + "; expected 0 to " +
           std::to_string(size() - 1));
    }
    text += bytes_[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace pareprop::data
