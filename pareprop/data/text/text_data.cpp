#include "pareprop/data/text/text_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "pareprop/data/text/bpe_trainer.h"
#include "pareprop/data/text/text_files.h"
#include "pareprop/data/text/tokenizer_file.h"

// Where persuasion_embed.S puts data/persuasion.txt.
extern "C" const char pareprop_persuasion_begin[];
extern "C" const char pareprop_persuasion_end[];

namespace pareprop::data {
namespace {

constexpr std::string_view kShipped = "persuasion";
constexpr std::string_view kPrefix = "text:";

TextFiles files_of(std::string_view spec) {
  if (spec == kShipped) {
    return {{checked_text(std::string(kShipped),
                          {pareprop_persuasion_begin, pareprop_persuasion_end})}};
  }
  if (spec.starts_with(kPrefix)) spec.remove_prefix(kPrefix.size());
  if (spec.empty()) {
    throw std::invalid_argument("text: no path is given; expected text:PATH or '" +
                                std::string(kShipped) + "'");
  }
  return read_text_files(spec);
}

std::vector<TokenId> joined(const Tokenizer& tokenizer, std::span<const std::string_view> texts) {
  std::vector<TokenId> tokens;
  for (const std::string_view text : texts) {
    if (text.empty()) continue;
    if (!tokens.empty()) tokens.push_back(tokenizer.end());
    const std::vector<TokenId> more = tokenizer.encode(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

}  // namespace

TextData open_text(std::string_view spec, const TextOptions& options) {
  TextFiles found = files_of(spec);
  std::vector<std::string_view> texts;
  for (const TextFile& file : found.files) texts.push_back(file.text);
  std::vector<std::string_view> train;
  std::vector<std::string_view> held_out;
  const auto split = [&](std::size_t (*begin_of)(std::string_view)) {
    train.clear();
    held_out.clear();
    for (const std::string_view text : texts) {
      const std::size_t cut = begin_of(text);
      train.push_back(text.substr(0, cut));
      held_out.push_back(text.substr(cut));
    }
  };
  split(held_out_begin);
  const auto is_empty = [](std::string_view text) { return text.empty(); };
  if (std::all_of(held_out.begin(), held_out.end(), is_empty)) split(held_out_word);
  Tokenizer tokenizer = options.tokenizer.empty()
                            ? Tokenizer(train_bpe(train, {.vocabulary = options.vocabulary,
                                                          .min_frequency = options.min_frequency}))
                            : load_tokenizer(options.tokenizer);
  std::vector<TokenId> train_tokens = joined(tokenizer, train);
  std::vector<TokenId> held_out_tokens = joined(tokenizer, held_out);
  return {std::move(tokenizer), std::move(train_tokens), std::move(held_out_tokens),
          std::move(found.left_out)};
}

double unigram_entropy(std::span<const TokenId> tokens) {
  // In the order of the ids, so that the sum has the same bits everywhere.
  std::map<TokenId, double> counts;
  for (const TokenId token : tokens) ++counts[token];
  const auto total = static_cast<double>(tokens.size());
  double entropy = 0;
  for (const auto& [token, count] : counts) entropy -= count / total * std::log(count / total);
  return entropy;
}

}  // namespace pareprop::data
