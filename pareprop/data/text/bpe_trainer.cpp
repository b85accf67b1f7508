#include "pareprop/data/text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pareprop/data/text/byte_alphabet.h"
#include "pareprop/data/text/pre_tokenizer.h"
#include "pareprop/text/utf8.h"

namespace pareprop::data {
namespace {

constexpr std::size_t kBytes = 256;

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("training a tokenizer: " + what);
}

using Pair = std::pair<TokenId, TokenId>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    constexpr std::size_t kSpread = 0x9e3779b97f4a7c15ULL;
    return (static_cast<std::size_t>(pair.first) << 32 ^ static_cast<std::size_t>(pair.second)) *
           kSpread;
  }
};

struct Word {
  std::vector<TokenId> tokens;
  std::int64_t count;
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  std::vector<std::size_t> words;  // in which it was found

  // The queue gives the largest: the most frequent, of these the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer() {
    for (const std::string_view name : kSpecialTokens) add_token(std::string(name));
    tables_.special = tables_.tokens;
    std::vector<std::pair<char32_t, std::size_t>> bytes;
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      const std::string written = in_byte_alphabet(std::string(1, static_cast<char>(byte)));
      bytes.emplace_back(text::character_at(written, 0).code, byte);
    }
    // Ids in the order of the characters, not of the bytes.
    std::sort(bytes.begin(), bytes.end());
    for (const auto& [code, byte] : bytes) of_byte_[byte] = add_token(text::to_utf8(code));
  }

  void add_line(std::string_view line) {
    for_each_word(line, [&](std::string_view word) {
      const auto [place, is_new] = places_.try_emplace(word, words_.size());
      if (is_new) words_.push_back({tokens_of(word), 0});
      ++words_[place->second].count;
    });
  }

  bool has_words() const { return !words_.empty(); }

  BpeTables run(const BpeTrainerOptions& options) {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const std::vector<TokenId>& tokens = words_[w].tokens;
      for (std::size_t i = 1; i < tokens.size(); ++i) count({tokens[i - 1], tokens[i]}, w, 1);
    }
    queue_found();
    while (static_cast<std::int64_t>(tables_.tokens.size()) < options.vocabulary &&
           !queue_.empty()) {
      Candidate best = pop();
      // Other merges took some of its occurrences, or gave it more.
      if (const std::int64_t now = counts_.at(best.pair); best.count != now) {
        best.count = now;
        push(std::move(best));
        continue;
      }
      if (best.count < options.min_frequency) break;
      merge(best);
    }
    return take_tables();
  }

 private:
  TokenId add_token(std::string token) {
    const auto id = static_cast<TokenId>(tables_.tokens.size());
    const auto [place, is_new] = ids_.try_emplace(token, id);
    if (is_new) tables_.tokens.push_back(std::move(token));
    return place->second;
  }

  std::vector<TokenId> tokens_of(std::string_view word) const {
    std::vector<TokenId> tokens;
    for (const char byte : word) tokens.push_back(of_byte_[static_cast<unsigned char>(byte)]);
    return tokens;
  }

  void count(const Pair& pair, std::size_t word, std::int64_t change) {
    counts_[pair] += change * words_[word].count;
    if (change < 0) return;
    std::vector<std::size_t>& found = found_[pair];
    if (found.empty() || found.back() != word) found.push_back(word);
  }

  void queue_found() {
    for (auto& [pair, words] : found_) {
      if (const std::int64_t now = counts_.at(pair); now > 0) {
        push({now, pair, std::move(words)});
      }
    }
    found_.clear();
  }

  void push(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }

  Candidate pop() {
    std::pop_heap(queue_.begin(), queue_.end());
    Candidate best = std::move(queue_.back());
    queue_.pop_back();
    return best;
  }

  void merge(const Candidate& best) {
    const auto text = [&](TokenId id) { return tables_.tokens[static_cast<std::size_t>(id)]; };
    const TokenId result = add_token(text(best.pair.first) + text(best.pair.second));
    merged_.push_back(best.pair);
    for (const std::size_t w : best.words) merge_in(w, best.pair, result);
    queue_found();
  }

  void merge_in(std::size_t w, const Pair& pair, TokenId result) {
    std::vector<TokenId>& tokens = words_[w].tokens;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i, ++kept) {
      if (i + 1 == tokens.size() || Pair(tokens[i], tokens[i + 1]) != pair) {
        tokens[kept] = tokens[i];
        continue;
      }
      if (kept > 0) {
        count({tokens[kept - 1], pair.first}, w, -1);
        count({tokens[kept - 1], result}, w, 1);
      }
      tokens[kept] = result;
      ++i;
      if (i + 1 < tokens.size()) {
        count({pair.second, tokens[i + 1]}, w, -1);
        count({result, tokens[i + 1]}, w, 1);
      }
    }
    tokens.resize(kept);
  }

  // A pair that was merged twice counts where it was merged last, as in tokenizers.
  BpeTables take_tables() {
    std::unordered_map<Pair, std::size_t, PairHash> last;
    for (std::size_t i = 0; i < merged_.size(); ++i) last[merged_[i]] = i;
    for (std::size_t i = 0; i < merged_.size(); ++i) {
      if (last.at(merged_[i]) != i) continue;
      tables_.merges.emplace_back(tables_.tokens[static_cast<std::size_t>(merged_[i].first)],
                                  tables_.tokens[static_cast<std::size_t>(merged_[i].second)]);
    }
    return std::move(tables_);
  }

  BpeTables tables_;
  std::unordered_map<std::string, TokenId> ids_;
  std::array<TokenId, kBytes> of_byte_{};
  std::vector<Word> words_;  // in the order in which they were met
  std::unordered_map<std::string_view, std::size_t> places_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<std::size_t>, PairHash> found_;  // since queue_found()
  std::vector<Candidate> queue_;  // a heap; std::priority_queue would copy what it gives
  std::vector<Pair> merged_;
};

}  // namespace

BpeTables train_bpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options) {
  constexpr auto kSmallest = static_cast<std::int64_t>(kBytes + std::size(kSpecialTokens));
  if (options.vocabulary < kSmallest) {
    fail("a vocabulary of " + std::to_string(options.vocabulary) +
         " tokens has no room for the special tokens and the 256 bytes; expected at least " +
         std::to_string(kSmallest));
  }
  if (options.min_frequency < 1) {
    fail("the minimum frequency is " + std::to_string(options.min_frequency) +
         "; expected at least 1");
  }
  Trainer trainer;
  for (std::string_view text : texts) {
    if (const std::size_t at = text::first_ill_formed(text); at < text.size()) {
      fail("a text is not UTF-8 at byte " + std::to_string(at));
    }
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      const std::size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
      trainer.add_line(text.substr(0, end));
      text.remove_prefix(end);
    }
  }
  if (!trainer.has_words()) fail("there is no text; expected at least one character");
  return trainer.run(options);
}

}  // namespace pareprop::data
