#include "pareprop/graph/keep_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

#include "tests/graph/random_case.h"

namespace pareprop {
namespace {

// The recurrence u[k] = u[k+2] - B[k](u[k+1]) on sets of known things instead of tensors.
struct Oracle {
  bool works = true;
  std::set<int> read;  // indices of the values that were used

  // `kept` are the values known when the backward pass begins, the outputs of the stack included.
  static Oracle walk(const KeepPlan& plan, const std::set<int>& kept) {
    Oracle oracle;
    std::set<int> known = kept;
    auto use = [&](int k) {
      oracle.works = oracle.works && known.count(k) == 1;
      oracle.read.insert(k);
    };
    for (int k = static_cast<int>(plan.branches.size()) - 1; k >= 0; --k) {
      const BranchKeep& keep = plan.branches[static_cast<std::size_t>(k)];
      if (!keep.tape) {
        use(k + 1);
        if (!plan.tape_only(k)) {
          use(k + 2);
          known.insert(k);
        }
      } else if (keep.needs_recover()) {
        oracle.works = false;  // the output of a branch whose tape was kept is gone
      }
    }
    return oracle;
  }
};

std::set<int> kept_values(const KeepPlan& plan) {
  std::set<int> kept;
  const int count = static_cast<int>(plan.branches.size());
  for (int k = 0; k < count; ++k) {
    if (plan.branches[static_cast<std::size_t>(k)].value) kept.insert(k);
  }
  if (plan.wants_y1) kept.insert(count);
  if (plan.wants_y2) kept.insert(count + 1);
  return kept;
}

std::vector<Policy> all(Policy policy, int depth) {
  return std::vector<Policy>(static_cast<std::size_t>(depth), policy);
}

TEST(KeepPlan, SufficesAndKeepsNothingUnread) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int depth = static_cast<int>(random() % 10);
    const auto policies = testing::random_policies(random, depth);
    const KeepOptions options = {.tail = random() % 2 ? static_cast<int>(random() % 22) : 0,
                                 .recover_bottom = random() % 2 == 0};
    const KeepPlan plan = keep_plan(policies, options);
    ASSERT_EQ(plan.depth(), depth);

    const std::set<int> kept = kept_values(plan);
    const Oracle oracle = Oracle::walk(plan, kept);
    ASSERT_TRUE(oracle.works);
    for (int k : kept) ASSERT_TRUE(oracle.read.count(k)) << "u[" << k << "] is kept for nobody";
    for (int k = 0; k < 2 * depth; ++k) {
      const BranchKeep& keep = plan.branches[static_cast<std::size_t>(k)];
      const bool is_drift = k == 0 && options.recover_bottom && !keep.tape && keep.wants_value;
      ASSERT_EQ(keep.wants_value, oracle.read.count(k) == 1 || is_drift) << "u[" << k << "]";
      const Policy policy = policies[static_cast<std::size_t>(k / 2)];
      ASSERT_EQ(keep.lean, policy == Policy::products) << "branch " << k;
      const bool stored = policy == Policy::store || keep.lean || k >= 2 * depth - options.tail;
      ASSERT_EQ(keep.tape, stored) << "branch " << k;
    }
  }
}

// Of stored and reversed blocks, with any tail: no smaller set of values would do.
TEST(KeepPlan, KeepsTheFewestValues) {
  for (int depth = 0; depth <= 3; ++depth) {
    for (int mix = 0; mix < 1 << depth; ++mix) {
      std::vector<Policy> policies;
      for (int i = 0; i < depth; ++i) {
        policies.push_back(mix >> i & 1 ? Policy::store : Policy::reverse);
      }
      for (int tail = 0; tail <= 2 * depth; ++tail) {
        for (bool bottom : {false, true}) {
          const KeepPlan plan = keep_plan(policies, {.tail = tail, .recover_bottom = bottom});
          const int count = 2 * depth;
          auto tape = [&](int k) { return plan.branches[static_cast<std::size_t>(k)].tape; };

          std::size_t fewest = 99;
          for (unsigned subset = 0; subset < 1U << (count + 2); ++subset) {
            std::set<int> known;
            for (int k = 0; k < count + 2; ++k) {
              if (subset >> k & 1) known.insert(k);
            }
            // Recovers whatever can be recovered, wanted or not.
            bool works = true;
            for (int k = count - 1; k >= 0; --k) {
              if (tape(k)) continue;
              works = works && known.count(k + 1);
              if (known.count(k + 1) && known.count(k + 2)) known.insert(k);
            }
            if (bottom && count > 0 && !tape(0)) works = works && known.count(0);
            if (works) {
              fewest = std::min(fewest, static_cast<std::size_t>(std::popcount(subset)));
            }
          }
          EXPECT_EQ(kept_values(plan).size(), fewest) << "depth " << depth << ", stored " << mix
                                                      << ", tail " << tail << ", bottom " << bottom;
        }
      }
    }
  }
}

TEST(KeepPlan, NamedModesKeepExactlyWhatTheyPromise) {
  for (int depth = 0; depth <= 8; ++depth) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    const int count = 2 * depth;

    const KeepPlan stored = keep_plan(all(Policy::store, depth));
    EXPECT_TRUE(kept_values(stored).empty());
    for (const BranchKeep& keep : stored.branches) {
      EXPECT_TRUE(keep.tape);
      EXPECT_FALSE(keep.needs_recover());
    }

    // Reversible: the two outputs and nothing else, and without either it would not work.
    const KeepPlan reverse = keep_plan(all(Policy::reverse, depth));
    if (depth == 0) {
      EXPECT_TRUE(kept_values(reverse).empty());
    } else {
      EXPECT_EQ(kept_values(reverse), (std::set<int>{count, count + 1}));
      EXPECT_FALSE(Oracle::walk(reverse, {count}).works);
      EXPECT_FALSE(Oracle::walk(reverse, {count + 1}).works);
    }
    for (int k = 0; k < count; ++k) {
      EXPECT_FALSE(reverse.at(k).tape);
      EXPECT_TRUE(reverse.at(k).needs_recover());
      EXPECT_FALSE(reverse.tape_only(k));
    }

    // Every input of a branch: u[1] ... u[2N].
    const KeepPlan checkpoint = keep_plan(all(Policy::checkpoint, depth));
    std::set<int> inputs;
    for (int k = 1; k <= count; ++k) inputs.insert(k);
    EXPECT_EQ(kept_values(checkpoint), inputs);
    for (int k = 0; k < count; ++k) EXPECT_TRUE(checkpoint.tape_only(k));

    // x2 of every block, and y1 of the stack; G is rebuilt without its output.
    const KeepPlan anchor = keep_plan(all(Policy::anchor, depth));
    std::set<int> anchors;
    for (int k = 1; k < count; k += 2) anchors.insert(k);
    if (depth > 0) anchors.insert(count);
    EXPECT_EQ(kept_values(anchor), anchors);
    for (int k = 0; k < count; ++k) {
      EXPECT_EQ(anchor.tape_only(k), k % 2 == 1) << k;
    }
  }
}

TEST(KeepPlan, TheBottomIsRecoveredOnlyWhenAsked) {
  EXPECT_TRUE(keep_plan(all(Policy::reverse, 3)).branches[0].wants_value);
  const KeepPlan plan = keep_plan(all(Policy::reverse, 3), {.recover_bottom = false});
  EXPECT_FALSE(plan.branches[0].wants_value);
  EXPECT_TRUE(plan.tape_only(0));
  EXPECT_TRUE(plan.branches[1].wants_value);
}

// The recurrence v[k+1] = v[k] + B[k](v[k]), upwards within each block and from the top block down.
TEST(KeepPlan, OneStreamSufficesAndKeepsOneValueABlock) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int depth = static_cast<int>(random() % 10);
    const auto policies = testing::random_policies(random, depth, Coupling::residual);
    const int tail = random() % 2 ? static_cast<int>(random() % 22) : 0;
    const int first_block = random() % 3 ? 0 : static_cast<int>(random() % 11);
    const KeepPlan plan = keep_plan(
        policies, {.tail = tail, .coupling = Coupling::residual, .first_block = first_block});
    EXPECT_EQ(plan.first, std::min(2 * first_block, 2 * depth));
    EXPECT_FALSE(plan.wants_y1 || plan.wants_y2);
    const std::set<int> kept = kept_values(plan);
    std::set<int> known = kept, read;
    for (int s = 0; s < plan.steps(); ++s) {
      const int k = recovered_at(plan.coupling, plan.count(), s);
      ASSERT_EQ(recovered_at(plan.coupling, plan.count(), k), s);
      ASSERT_EQ(plan.at(k).needs_recover(), !plan.at(k).tape);
      if (plan.at(k).tape) continue;
      ASSERT_TRUE(known.contains(k)) << "v[" << k << "] is missing";
      read.insert(k);
      if (!plan.tape_only(k)) known.insert(k + 1);
    }
    EXPECT_EQ(read, known) << "kept or made for nobody";
    for (int i = 0; i < depth; ++i) {
      const bool stored = keeps_tape(policies[static_cast<std::size_t>(i)]);
      ASSERT_LE(kept.count(2 * i) + kept.count(2 * i + 1), stored || 2 * i < plan.first ? 0u : 1u);
    }
  }
}

TEST(KeepPlan, BlocksThatNothingIsTrainedInKeepNothing) {
  for (const Policy policy : kPolicies) {
    const KeepPlan whole = keep_plan(all(policy, 5));
    const KeepPlan part = keep_plan(all(policy, 5), {.first_block = 3});
    EXPECT_EQ(part.steps(), 4);
    for (int k = 0; k < 6; ++k) {
      EXPECT_FALSE(part.at(k).tape || part.at(k).value || part.at(k).wants_value) << k;
    }
    for (int k = 6; k < 10; ++k) {
      EXPECT_EQ(part.at(k).tape, whole.at(k).tape) << k;
      EXPECT_LE(part.at(k).value, whole.at(k).value) << k;
    }
    EXPECT_EQ(keep_plan(all(policy, 5), {.first_block = 5}).steps(), 0);
  }
}

}  // namespace
}  // namespace pareprop
