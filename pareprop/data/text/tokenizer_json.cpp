#include "pareprop/data/text/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "pareprop/io/json.h"
#include "pareprop/text/escape.h"

namespace pareprop::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kMergesHeader = "#version";

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

// Not what is inside: dump() calls itself as deep as the value is nested.
std::string shown(const json& value) {
  if (value.is_string()) return text::in_quotes(value.get_ref<const std::string&>());
  if (value.is_object() && value.contains("type") && value["type"].is_string()) {
    return text::in_quotes(value["type"].get_ref<const std::string&>());
  }
  return value.is_structured() ? std::string("an ") + value.type_name() : value.dump();
}

json parse_object(std::string_view text, const std::string& file) {
  json value = io::parse_json(text, file);
  if (!value.is_object()) fail(file + " is not a JSON object");
  return value;
}

// Null where there is none.
const json& field(const json& object, const char* name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

using Numbered = std::map<TokenId, std::string>;

void add_token(Numbered& tokens, const std::string& token, const json& id) {
  constexpr TokenId kLargest = std::numeric_limits<TokenId>::max();
  if (!id.is_number_integer() || id < 0 || id > kLargest) {
    fail("the token " + text::in_quotes(token) + " has the id " + shown(id) +
         "; expected an integer from 0 to " + std::to_string(kLargest));
  }
  const auto [other, is_new] = tokens.emplace(id.get<TokenId>(), token);
  if (!is_new && other->second != token) {
    fail("the id " + shown(id) + " appears twice, for the tokens " +
         text::in_quotes(other->second) + " and " + text::in_quotes(token));
  }
}

std::vector<std::string> in_order(Numbered tokens) {
  std::vector<std::string> result;
  for (auto& [id, token] : tokens) {
    if (id != static_cast<TokenId>(result.size())) {
      fail("no token has the id " + std::to_string(result.size()) + ", but " +
           text::in_quotes(token) + " has " + std::to_string(id) + "; expected all ids from 0 on");
    }
    result.push_back(std::move(token));
  }
  return result;
}

Numbered vocabulary_of(const json& vocab) {
  Numbered tokens;
  for (const auto& [token, id] : vocab.items()) add_token(tokens, token, id);
  return tokens;
}

std::pair<std::string, std::string> split_merge(std::string_view text, const std::string& what) {
  const std::size_t space = text.find(' ');
  if (space == 0 || space >= text.size() - 1 ||
      text.find(' ', space + 1) != std::string_view::npos) {
    fail(what + " is " + text::in_quotes(text) + "; expected two tokens with a space between them");
  }
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

std::pair<std::string, std::string> merge_of(const json& merge, std::size_t number) {
  const std::string what = "merge " + std::to_string(number);
  if (merge.is_string()) return split_merge(merge.get_ref<const std::string&>(), what);
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    fail(what + " is " + shown(merge) + "; expected two tokens");
  }
  return {merge[0], merge[1]};
}

// What tokenizers would do and we do not: it has to be off.
void check_settings(const json& file, const json& model) {
  const auto refuse = [](const std::string& name, const json& value, const std::string& expected) {
    fail(name + " is " + shown(value) + "; expected " + expected +
         ": a byte-level BPE like RoBERTa's");
  };
  // Older files, such as that of roberta-base, do not name the type.
  if (model.contains("type") && model["type"] != "BPE") {
    refuse("the model's type", model["type"], "'BPE'");
  }
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                           "byte_fallback", "ignore_merges"}) {
    const json& value = field(model, name);
    if (!value.is_null() && value != "" && value != false && value != 0) {
      refuse(std::string("the model's ") + name, value, "none");
    }
  }
  if (const json& value = field(file, "normalizer"); !value.is_null()) {
    refuse("the normalizer", value, "none");
  }
  const json& pre = field(file, "pre_tokenizer");
  if (!pre.is_object() || field(pre, "type") != "ByteLevel") {
    refuse("the pre_tokenizer", pre, "'ByteLevel'");
  }
  if (const json& value = field(pre, "add_prefix_space"); value != false) {
    refuse("add_prefix_space", value, "false");
  }
  if (const json& value = field(pre, "use_regex"); !value.is_null() && value != true) {
    refuse("use_regex", value, "true");
  }
}

ordered_json vocab_of(const BpeTables& tables) {
  ordered_json vocab = ordered_json::object();
  // ordered_json looks a key up from the front when it is assigned: quadratic.
  auto& pairs = vocab.get_ref<ordered_json::object_t&>();
  for (std::size_t i = 0; i < tables.tokens.size(); ++i) {
    pairs.std::vector<std::pair<const std::string, ordered_json>>::emplace_back(tables.tokens[i],
                                                                                i);
  }
  return vocab;
}

}  // namespace

BpeTables parse_tokenizer_json(std::string_view text) {
  const json file = parse_object(text, "tokenizer.json");
  const json& model = field(file, "model");
  if (!model.is_object()) fail("tokenizer.json has no model");
  check_settings(file, model);
  const json& vocab = field(model, "vocab");
  if (!vocab.is_object()) fail("the model's vocab is missing; expected an object of ids");
  const json& merges = field(model, "merges");
  if (!merges.is_array()) fail("the model's merges are missing; expected an array");

  BpeTables tables;
  Numbered tokens = vocabulary_of(vocab);
  if (const json& added = field(file, "added_tokens"); !added.is_null()) {
    if (!added.is_array()) fail("added_tokens is " + shown(added) + "; expected an array");
    for (const json& token : added) {
      const json& content = token.is_object() ? field(token, "content") : token;
      if (!token.is_object() || !content.is_string()) {
        fail("an added token is " + shown(token) + "; expected an object with content and id");
      }
      add_token(tokens, content, field(token, "id"));
      tables.special.push_back(content);
    }
  }
  tables.tokens = in_order(std::move(tokens));
  for (const json& merge : merges) {
    tables.merges.push_back(merge_of(merge, tables.merges.size() + 1));
  }
  return tables;
}

std::string format_tokenizer_json(const BpeTables& tables) {
  const auto id_of = [&](std::string_view token) {
    return std::find(tables.tokens.begin(), tables.tokens.end(), token) - tables.tokens.begin();
  };
  ordered_json added = ordered_json::array();
  for (const std::string& token : tables.special) {
    added.push_back({{"id", id_of(token)},
                     {"content", token},
                     {"single_word", false},
                     // A masked word has the space before it, and so has its mask.
                     {"lstrip", token == "<mask>"},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  ordered_json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", false},
                             {"use_regex", true}};
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : tables.merges) {
    merges.push_back(ordered_json::array({left, right}));
  }
  const auto with_id = [&](const char* token) {
    return ordered_json::array({token, id_of(token)});
  };
  ordered_json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = std::move(added);
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = byte_level;
  file["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", with_id("</s>")},
                            {"cls", with_id("<s>")},
                            {"trim_offsets", false},
                            {"add_prefix_space", false}};
  file["decoder"] = byte_level;
  file["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", vocab_of(tables)},
                   {"merges", std::move(merges)}};
  return file.dump(2);
}

BpeTables parse_vocabulary(std::string_view vocab_json, std::string_view merges_txt) {
  BpeTables tables;
  tables.tokens = in_order(vocabulary_of(parse_object(vocab_json, "vocab.json")));
  for (const std::string_view name : kSpecialTokens) {
    if (std::find(tables.tokens.begin(), tables.tokens.end(), name) != tables.tokens.end()) {
      tables.special.emplace_back(name);
    }
  }
  for (int number = 1; !merges_txt.empty(); ++number) {
    const std::size_t newline = merges_txt.find('\n');
    std::string_view line = merges_txt.substr(0, newline);
    merges_txt.remove_prefix(newline == std::string_view::npos ? merges_txt.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with(kMergesHeader)) continue;
    tables.merges.push_back(split_merge(line, "line " + std::to_string(number) + " of merges.txt"));
  }
  return tables;
}

std::string format_tokenizer_config_json() {
  const ordered_json file = {{"tokenizer_class", "RobertaTokenizer"},
                             {"add_prefix_space", false},
                             {"bos_token", "<s>"},
                             {"cls_token", "<s>"},
                             {"eos_token", "</s>"},
                             {"sep_token", "</s>"},
                             {"unk_token", "<unk>"},
                             {"pad_token", "<pad>"},
                             {"mask_token", "<mask>"}};
  return file.dump(2) + "\n";
}

std::string format_vocab_json(const BpeTables& tables) { return vocab_of(tables).dump(); }

std::string format_merges_txt(const BpeTables& tables) {
  std::string text = std::string(kMergesHeader) + ": 0.2\n";
  for (const auto& [left, right] : tables.merges) text += left + " " + right + "\n";
  return text;
}

}  // namespace pareprop::data
