#include "pareprop/sweep/sweep.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop::sweep {
namespace {

std::vector<std::string> names(const Sweep& sweep) {
  std::vector<std::string> out;
  for (const Case& one : cases_of(sweep, 2)) out.push_back(one.name());
  return out;
}

std::string refusal(const Grid& grid) {
  try {
    cases_of({.rows = {grid}}, 2);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Sweep, ListsAreCrossed) {
  const auto cases = cases_of({.rows = {{.models = {"a", "b"},
                                         .depths = {{3}, {2, 4}},
                                         .image_sizes = {32, 64},
                                         .batches = {1, 8},
                                         .precisions = {Precision::fp32, Precision::bf16},
                                         .threads = {0, 1}}}},
                              4);
  EXPECT_EQ(cases.size(), 64U);
  EXPECT_EQ(cases.front().name(), "a, depth 3, image size 32, batch 1, fp32, 4 threads");
  EXPECT_EQ(cases.back().name(), "b, depth 2+4, image size 64, batch 8, bf16, 1 thread");
  EXPECT_EQ(cases.front().modes, all_modes());
}

TEST(Sweep, NamesTellWhatDiffers) {
  EXPECT_EQ(names({.rows = {{}}}), std::vector<std::string>{"vit_tiny, batch 4, fp32, 2 threads"});
  const Grid grid{.models = {"roberta_base"},
                  .seq_lens = {128},
                  .change = {.width = 48, .vocabulary = 99, .dropout = 0.1, .plain = true},
                  .arithmetic = Arithmetic::exact,
                  .seed = 7};
  EXPECT_EQ(names({.rows = {grid}}),
            std::vector<std::string>{"plain roberta_base, width 48, length 128, vocabulary 99, "
                                     "dropout 0.1, batch 4, fp32, exact, 2 threads, seed 7"});
  EXPECT_EQ(cases_of({.rows = {grid}}, 2)[0].modes,
            (std::vector<Mode>{Mode::stored, Mode::checkpoint, Mode::automatic}));
}

TEST(Sweep, TheSameCaseOfTwoRowsIsRunOnceWithTheModesOfBoth) {
  const auto cases =
      cases_of({.rows = {{.batches = {1, 2, 1}, .modes = {Mode::stored}},
                         {.batches = {2}, .modes = {Mode::stored, Mode::reprop}, .budgets = {5}}}},
               2);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].modes, std::vector<Mode>{Mode::stored});
  EXPECT_EQ(cases[1].modes, (std::vector<Mode>{Mode::stored, Mode::reprop}));
  EXPECT_EQ(cases[1].budgets, std::vector<std::int64_t>{5});
}

TEST(Sweep, RefusesWhatCannotBe) {
  EXPECT_EQ(refusal({.batches = {4, 0}}), "batch: expected 1 or more, got 0");
  EXPECT_EQ(refusal({.batches = {}}), "batch: expected one or more, got none");
  EXPECT_EQ(refusal({.models = {}}), "model: expected one or more, got none");
  EXPECT_EQ(refusal({.threads = {-1}}), "threads: expected 0 or more, got -1");
  EXPECT_EQ(refusal({.budgets = {0}}), "budget: expected 1 or more, got 0");
  EXPECT_NE(refusal({.change = {.dropout = 1.0}}).find("dropout: expected a probability"),
            std::string::npos);
  EXPECT_THROW(cases_of({}, 2), std::invalid_argument);
  EXPECT_THROW(cases_of({.rounds = 0, .rows = {{}}}, 2), std::invalid_argument);
  EXPECT_THROW(cases_of({.steps = 0, .rows = {{}}}, 2), std::invalid_argument);
}

TEST(Sweep, Families) {
  EXPECT_EQ(family_of("vit_tiny"), "vit");
  EXPECT_EQ(family_of("mine"), "mine");
}

}  // namespace
}  // namespace pareprop::sweep
