#include "pareprop/data/text/bpe_merges.h"

#include <functional>
#include <queue>
#include <tuple>

namespace pareprop::data {
namespace {

constexpr TokenId kGone = -1;

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// Rank, place of the left token, result.
using Candidate = std::tuple<std::int32_t, std::int32_t, TokenId>;

}  // namespace

bool BpeMerges::add(TokenId left, TokenId right, TokenId result) {
  const auto rank = static_cast<std::int32_t>(merges_.size());
  return merges_.emplace(key_of(left, right), Merge{rank, result}).second;
}

const BpeMerges::Merge* BpeMerges::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<TokenId>& word) const {
  const auto size = static_cast<std::int32_t>(word.size());
  std::vector<std::int32_t> next(word.size());
  std::vector<std::int32_t> previous(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t left) {
    if (left < 0 || next[left] == size) return;
    if (const Merge* merge = find(word[left], word[next[left]])) {
      queue.emplace(merge->rank, left, merge->result);
    }
  };
  for (std::int32_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (std::int32_t i = 0; i < size; ++i) consider(i);

  while (!queue.empty()) {
    const auto [rank, left, result] = queue.top();
    queue.pop();
    // Neighbours change after a candidate was seen; their new pairs are candidates of their own.
    if (word[left] == kGone || next[left] == size) continue;
    const std::int32_t right = next[left];
    const Merge* const merge = find(word[left], word[right]);
    if (merge == nullptr || merge->rank != rank) continue;
    word[left] = result;
    word[right] = kGone;
    next[left] = next[right];
    if (next[left] < size) previous[next[left]] = left;
    consider(previous[left]);
    consider(left);
  }
  std::erase(word, kGone);
}

}  // namespace pareprop::data
