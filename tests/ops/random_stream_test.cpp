#include "pareprop/ops/random_stream.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <set>

namespace pareprop {
namespace {

const at::TensorOptions kFloat(at::kFloat);

TEST(RandomStream, TheSameKeyDrawsTheSameMasksInTheSameOrder) {
  RandomStream a(5), b(5), c(6);
  const auto first = a.keep_mask({100, 7}, 0.3, kFloat),
             second = a.keep_mask({100, 7}, 0.3, kFloat);
  EXPECT_TRUE(first.equal(b.keep_mask({100, 7}, 0.3, kFloat)));
  EXPECT_TRUE(second.equal(b.keep_mask({100, 7}, 0.3, kFloat)));
  EXPECT_FALSE(first.equal(second));
  EXPECT_FALSE(first.equal(c.keep_mask({100, 7}, 0.3, kFloat)));
}

TEST(RandomStream, MasksDoNotDependOnTheNumberOfThreads) {
  at::get_num_threads();
  omp_set_num_threads(1);
  RandomStream a(9);
  const auto one = a.keep_mask({100003}, 0.5, kFloat);
  for (int threads : {2, 3, 5}) {
    omp_set_num_threads(threads);
    RandomStream b(9);
    EXPECT_TRUE(one.equal(b.keep_mask({100003}, 0.5, kFloat))) << threads;
  }
}

TEST(RandomStream, KeepsTheRightShareAndTheMean) {
  for (double drop : {0.1, 0.5, 0.9}) {
    RandomStream stream(3);
    const auto mask = stream.keep_mask({400000}, drop, kFloat);
    const double kept = mask.gt(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1.0 - drop, 0.005);
    EXPECT_NEAR(mask.mean().item<double>(), 1.0, 0.02);
    const auto values = std::get<0>(at::_unique(mask));
    EXPECT_EQ(values.numel(), 2);
  }
}

TEST(RandomStream, KeysOfNearbyNumbersAreFarApart) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t step = 0; step < 50; ++step) {
    for (std::uint64_t stack = 0; stack < 4; ++stack) {
      for (std::uint64_t branch = 0; branch < 50; ++branch)
        keys.insert(random_key({1, step, stack, branch}));
    }
  }
  EXPECT_EQ(keys.size(), 50u * 4u * 50u);
  EXPECT_NE(random_key({1, 2}), random_key({2, 1}));
}

TEST(RandomStream, PartsOfABatchHaveTheMaskOfTheWhole) {
  for (const std::int64_t each : {1, 3, 7, 64}) {  // elements of a sample
    RandomStream whole(11);
    whole.keep_mask({12, each}, 0.4, kFloat);
    const at::Tensor second = whole.keep_mask({12, each}, 0.4, kFloat);
    for (const BatchPart part : {BatchPart{0, 5}, BatchPart{5, 5}, BatchPart{10, 2}}) {
      RandomStream own(RandomKey(11, part));
      own.keep_mask({part.samples, each}, 0.4, kFloat);
      EXPECT_TRUE(own.keep_mask({part.samples, each}, 0.4, kFloat)
                      .equal(second.narrow(0, part.first, part.samples)))
          << each << " " << part.first;
    }
  }
}

TEST(RandomStream, AKeyGoesOnWhereAnotherEnded) {
  EXPECT_EQ(random_key({1, 2, 3}), random_key(random_key({1, 2}), {3}));
}

TEST(Dropout, DropPathDropsWholeSamples) {
  RandomStream stream(1);
  RandomScope scope(stream);
  const auto y = drop_path(at::ones({64, 3, 5}), 0.5);
  const auto sums = y.sum({1, 2});
  for (std::int64_t i = 0; i < 64; ++i) {
    const double sum = sums[i].item<double>();
    EXPECT_TRUE(sum == 0.0 || std::abs(sum - 30.0) < 1e-4) << sum;
  }
  EXPECT_GT(sums.gt(0).sum().item<int>(), 10);
  EXPECT_LT(sums.gt(0).sum().item<int>(), 54);
}

TEST(Dropout, ZeroReturnsTheTensorItselfAndDrawsNothing) {
  const auto x = at::ones({3});
  EXPECT_TRUE(dropout(x, 0.0).is_same(x));
  EXPECT_TRUE(drop_path(x, 0.0).is_same(x));
}

TEST(Dropout, NothingIsDrawnWhereNothingMayBe) {
  EXPECT_FALSE(in_branch());
  RandomStream stream(1);
  RandomScope scope(stream);
  EXPECT_TRUE(in_branch());
  {
    const NoDrawScope none;
    EXPECT_TRUE(in_branch());
    EXPECT_THROW(dropout(at::ones({3}), 0.5), std::logic_error);
    RandomStream own(2);
    RandomScope inner(own);  // of a checkpoint that draws again by itself
    dropout(at::ones({3}), 0.5);
  }
  dropout(at::ones({3}), 0.5);
}

TEST(Dropout, ScopesNest) {
  RandomStream outer(1), inner(2);
  RandomScope outer_scope(outer);
  const auto x = at::ones({1000});
  {
    RandomScope inner_scope(inner);
    RandomStream again(2);
    EXPECT_TRUE(dropout(x, 0.5).equal(again.keep_mask({1000}, 0.5, kFloat)));
  }
  RandomStream again(1);
  EXPECT_TRUE(dropout(x, 0.5).equal(again.keep_mask({1000}, 0.5, kFloat)));
}

}  // namespace
}  // namespace pareprop
