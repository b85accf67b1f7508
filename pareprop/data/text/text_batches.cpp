#include "pareprop/data/text/text_batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/shuffle.h"

namespace pareprop::data {
namespace {

constexpr std::int64_t kFrame = 2;  // <s> and </s>

// First parts of keys: what the random numbers are for.
enum Purpose : std::uint64_t { kOrder = 1, kTrainingMasks, kEvaluationMasks };

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("text: " + what); }

void check(const TextBatchesOptions& options) {
  if (options.batch < 1) {
    fail("the batch size is " + std::to_string(options.batch) + "; expected at least 1");
  }
  if (options.length <= kFrame) {
    fail("the sequence length is " + std::to_string(options.length) +
         "; expected at least 3: <s>, a token, </s>");
  }
  const auto [rank, world] = options.shard;
  if (world < 1 || rank < 0 || rank >= world) {
    fail("this is process " + std::to_string(rank) + " of " + std::to_string(world) +
         "; expected a number from 0 to the number of processes minus 1");
  }
}

}  // namespace

TextBatches::TextBatches(std::vector<TokenId> text, const Tokenizer& tokenizer,
                         const TextBatchesOptions& options)
    : text_(std::move(text)),
      options_(options),
      masking_(tokenizer),
      start_(tokenizer.start()),
      end_(tokenizer.end()),
      padding_(tokenizer.padding()),
      sequences_(0) {
  check(options_);
  const auto tokens = static_cast<std::int64_t>(text_.size());
  const std::int64_t content = options_.length - kFrame;
  sequences_ = options_.training ? tokens / content : (tokens + content - 1) / content;
  if (!options_.training && tokens == 0) fail("there are no tokens for validation");
  if (options_.training && per_epoch() == 0) {
    fail("the text has " + std::to_string(tokens) + " tokens, which make " +
         std::to_string(sequences_) + " sequences of " + std::to_string(options_.length) +
         "; expected at least " + std::to_string(options_.batch * options_.shard.world) +
         " for a batch. Give more text, a smaller batch or shorter sequences");
  }
}

std::int64_t TextBatches::per_epoch() const {
  const std::int64_t global = options_.batch * options_.shard.world;
  return options_.training ? sequences_ / global : (sequences_ + global - 1) / global;
}

Batch TextBatches::make(std::int64_t number) const {
  if (number < 0) fail("there is no batch " + std::to_string(number) + "; expected 0 or more");
  const auto epoch = static_cast<std::uint64_t>(number / per_epoch());
  const std::int64_t first =
      (number % per_epoch() * options_.shard.world + options_.shard.rank) * options_.batch;
  const std::int64_t rows = std::clamp<std::int64_t>(sequences_ - first, 0, options_.batch);
  const std::int64_t content = options_.length - kFrame;
  const Shuffle order(static_cast<std::uint64_t>(sequences_),
                      CounterRandom{kOrder, options_.seed, epoch}.next());

  Batch batch{at::full({rows, options_.length}, padding_, at::kLong),
              at::empty({rows, options_.length}, at::kLong)};
  for (std::int64_t r = 0; r < rows; ++r) {
    auto sequence = static_cast<std::uint64_t>(first + r);
    if (options_.training) sequence = order[sequence];
    const auto begin = text_.begin() + static_cast<std::int64_t>(sequence) * content;
    const std::int64_t tokens = std::min<std::int64_t>(content, text_.end() - begin);

    const auto length = static_cast<std::size_t>(options_.length);
    const std::span input(batch.input.mutable_data_ptr<std::int64_t>() + r * options_.length,
                          length);
    const std::span target(batch.target.mutable_data_ptr<std::int64_t>() + r * options_.length,
                           length);
    input[0] = start_;
    std::copy(begin, begin + tokens, input.begin() + 1);
    input[static_cast<std::size_t>(tokens) + 1] = end_;
    if (tokens < content) batch.mask = batch.input.ne(padding_);
    masking_.apply(options_.training ? CounterRandom{kTrainingMasks, options_.seed, epoch, sequence}
                                     : CounterRandom{kEvaluationMasks, sequence},
                   input, target);
  }
  return batch;
}

}  // namespace pareprop::data
