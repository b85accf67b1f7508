#include "pareprop/data/text/text_batches.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include "tests/data/text/small_tables.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;

const Tokenizer& tokenizer() {
  static const Tokenizer result(testing::small_tables());
  return result;
}

// Tokens that say where in the text they stand, up to 256 of them.
std::vector<TokenId> numbered_text(int tokens) {
  std::vector<TokenId> text(static_cast<std::size_t>(tokens));
  std::iota(text.begin(), text.end(), 5);
  return text;
}

TextBatches batches(int tokens, const TextBatchesOptions& options) {
  return {numbered_text(tokens), tokenizer(), options};
}

// The input as it was before it was masked.
at::Tensor unmasked(const Batch& batch) {
  return batch.input.where(batch.target.eq(kNotScored), batch.target);
}

bool same(const Batch& a, const Batch& b) {
  return at::equal(a.input, b.input) && at::equal(a.target, b.target) &&
         a.mask.defined() == b.mask.defined() && (!a.mask.defined() || at::equal(a.mask, b.mask));
}

TEST(TextBatches, HoldEverySequenceOnceInAnEpochInAnotherOrderInEach) {
  const TextBatches data = batches(203, {.batch = 5, .length = 12});
  EXPECT_EQ(data.sequences(), 20);
  ASSERT_EQ(data.per_epoch(), 4);
  std::set<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::vector<std::int64_t> order;
    for (int i = 0; i < 4; ++i) {
      const Batch batch = data.make(epoch * 4 + i);
      ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{5, 12}));
      ASSERT_EQ(batch.target.sizes(), (at::IntArrayRef{5, 12}));
      ASSERT_EQ(batch.input.scalar_type(), at::kLong);
      ASSERT_FALSE(batch.mask.defined());
      const at::Tensor text = unmasked(batch);
      for (int r = 0; r < 5; ++r) {
        ASSERT_EQ(text[r][0].item<std::int64_t>(), tokenizer().start());
        ASSERT_EQ(text[r][11].item<std::int64_t>(), tokenizer().end());
        const auto first = text[r][1].item<std::int64_t>() - 5;
        for (int k = 1; k < 11; ++k) ASSERT_EQ(text[r][k].item<std::int64_t>(), first + 4 + k);
        order.push_back(first / 10);
      }
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < 20; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(TextBatches, DependOnSeedAndNumberAlone) {
  const TextBatchesOptions options{.batch = 4, .length = 22, .seed = 3};
  const TextBatches data = batches(250, options);
  const Batch first = data.make(17);
  data.make(2);
  EXPECT_TRUE(same(data.make(17), first));
  EXPECT_TRUE(same(batches(250, options).make(17), first));
  TextBatchesOptions other = options;
  other.seed = 4;
  EXPECT_FALSE(same(batches(250, other).make(17), first));
  EXPECT_FALSE(same(data.make(18), first));
}

TEST(TextBatches, MaskTheSameSequenceOtherwiseInEachEpoch) {
  const TextBatches data = batches(200, {.batch = 1, .length = 202});
  std::set<std::string> seen;
  for (int epoch = 0; epoch < 10; ++epoch) {
    std::string scored;
    const at::Tensor target = data.make(epoch).target;
    for (int i = 0; i < 202; ++i) {
      scored += target[0][i].item<std::int64_t>() == kNotScored ? '.' : 'x';
    }
    seen.insert(scored);
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(TextBatches, OfAllProcessesAreThoseOfOne) {
  for (const bool training : {true, false}) {
    const TextBatches whole = batches(228, {.batch = 6, .length = 7, .training = training});
    for (const int world : {2, 3}) {
      for (int number = 0; number < 2 * whole.per_epoch(); ++number) {
        std::vector<at::Tensor> input;
        std::vector<at::Tensor> target;
        for (int rank = 0; rank < world; ++rank) {
          const TextBatches part = batches(228, {.batch = 6 / world,
                                                 .length = 7,
                                                 .training = training,
                                                 .shard = {.rank = rank, .world = world}});
          ASSERT_EQ(part.per_epoch(), whole.per_epoch());
          const Batch batch = part.make(number);
          input.push_back(batch.input);
          target.push_back(batch.target);
        }
        EXPECT_TRUE(at::equal(at::cat(input), whole.make(number).input));
        EXPECT_TRUE(at::equal(at::cat(target), whole.make(number).target));
      }
    }
  }
}

TEST(TextBatches, OfEvaluationTakeEveryTokenInOrderAndPadTheLastSequence) {
  const TextBatches data = batches(34, {.batch = 2, .length = 12, .training = false});
  ASSERT_EQ(data.per_epoch(), 2);
  EXPECT_FALSE(data.make(0).mask.defined());
  const Batch last = data.make(1);
  ASSERT_EQ(last.input.size(0), 2);
  const at::Tensor text = unmasked(last);
  for (int k = 1; k <= 4; ++k) EXPECT_EQ(text[1][k].item<std::int64_t>(), 5 + 30 + k - 1);
  EXPECT_EQ(text[1][5].item<std::int64_t>(), tokenizer().end());
  EXPECT_EQ(text[1][6].item<std::int64_t>(), tokenizer().padding());
  ASSERT_EQ(last.mask.scalar_type(), at::kBool);
  EXPECT_EQ(last.mask[0].sum().item<std::int64_t>(), 12);
  EXPECT_EQ(last.mask[1].sum().item<std::int64_t>(), 6);
  EXPECT_TRUE(last.mask[1][5].item<bool>());
}

TEST(TextBatches, OfEvaluationAreTheSameInEveryEpochForEverySeed) {
  const TextBatches data = batches(100, {.batch = 3, .length = 12, .training = false, .seed = 1});
  const TextBatches other = batches(100, {.batch = 3, .length = 12, .training = false, .seed = 2});
  for (std::int64_t i = 0; i < data.per_epoch(); ++i) {
    EXPECT_TRUE(same(data.make(i), data.make(i + data.per_epoch())));
    EXPECT_TRUE(same(data.make(i), other.make(i)));
  }
}

TEST(TextBatches, OfEvaluationCanBeEmptyForSomeProcesses) {
  const TextBatches data =
      batches(10, {.batch = 4, .length = 12, .training = false, .shard = {.rank = 1, .world = 2}});
  const Batch batch = data.make(0);
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{0, 12}));
  EXPECT_EQ(batch.target.sizes(), (at::IntArrayRef{0, 12}));
}

TEST(TextBatches, SayWhatIsWrong) {
  const auto error = [](int tokens, const TextBatchesOptions& options) {
    return message_of<std::invalid_argument>([&] { batches(tokens, options); });
  };
  EXPECT_EQ(error(100, {.batch = 0}), "text: the batch size is 0; expected at least 1");
  EXPECT_NE(error(100, {.length = 2}).find("the sequence length is 2"), std::string::npos);
  EXPECT_NE(error(100, {.shard = {.rank = 2, .world = 2}}).find("process 2 of 2"),
            std::string::npos);
  EXPECT_EQ(
      error(100, {.batch = 2, .length = 60}),
      "text: the text has 100 tokens, which make 1 sequences of 60; expected at least 2 for a "
      "batch. Give more text, a smaller batch or shorter sequences");
  EXPECT_NE(error(0, {}).find("the text has 0 tokens"), std::string::npos);
  EXPECT_EQ(error(0, {.training = false}), "text: there are no tokens for validation");
  EXPECT_EQ(
      message_of<std::invalid_argument>([] { batches(100, {.batch = 1, .length = 12}).make(-1); }),
      "text: there is no batch -1; expected 0 or more");
}

}  // namespace
}  // namespace pareprop::data
