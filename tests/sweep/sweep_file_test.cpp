#include "pareprop/sweep/sweep_file.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop::sweep {
namespace {

std::string refusal(const std::string& json) {
  try {
    parse_sweep(json, "my.json");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

void expect_refusal(const std::string& json, const std::vector<std::string>& says) {
  const std::string why = refusal(json);
  EXPECT_EQ(why.rfind("my.json: ", 0), 0U) << why;
  for (const std::string& words : says) {
    EXPECT_NE(why.find(words), std::string::npos) << "'" << words << "' in: " << why;
  }
}

TEST(SweepFile, ReadsEveryKey) {
  const Sweep sweep = parse_sweep(R"({"rounds": 3, "steps": 1, "rows": [
      {"models": ["vit_tiny", "swin_tiny"], "depths": [4, [2, 2, 6, 2]], "image_sizes": [64],
       "batches": [1, 4], "precisions": ["fp32", "bf16"], "threads": [1, 2],
       "modes": ["reprop", "auto"], "budgets": ["200MiB", 4096], "plain": false, "exact": true,
       "seed": 9, "width": 48, "classes": 10, "dropout": 0.1, "drop_path": 0},
      {"models": ["roberta_base"], "seq_lens": [128], "vocabulary": 99}]})",
                                  "my.json");
  EXPECT_EQ(sweep.rounds, 3);
  EXPECT_EQ(sweep.steps, 1);
  ASSERT_EQ(sweep.rows.size(), 2U);
  const Grid& first = sweep.rows[0];
  EXPECT_EQ(first.models, (std::vector<std::string>{"vit_tiny", "swin_tiny"}));
  EXPECT_EQ(first.depths, (std::vector<std::vector<int>>{{4}, {2, 2, 6, 2}}));
  EXPECT_EQ(first.image_sizes, std::vector<std::int64_t>{64});
  EXPECT_EQ(first.batches, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(first.precisions, (std::vector<Precision>{Precision::fp32, Precision::bf16}));
  EXPECT_EQ(first.threads, (std::vector<int>{1, 2}));
  EXPECT_EQ(first.modes, (std::vector<Mode>{Mode::reprop, Mode::automatic}));
  EXPECT_EQ(first.budgets, (std::vector<std::int64_t>{200 << 20, 4096}));
  EXPECT_EQ(first.arithmetic, Arithmetic::exact);
  EXPECT_EQ(first.seed, 9U);
  EXPECT_EQ(first.change.width, 48);
  EXPECT_EQ(first.change.classes, 10);
  EXPECT_EQ(first.change.dropout, 0.1);
  EXPECT_EQ(first.change.drop_path, 0.0);
  EXPECT_EQ(sweep.rows[1].seq_lens, std::vector<std::int64_t>{128});
  EXPECT_EQ(sweep.rows[1].change.vocabulary, 99);
  EXPECT_EQ(sweep.rows[1].batches, std::vector<std::int64_t>{4});
}

TEST(SweepFile, NamesAnUnknownKeyAndTheKnownOnes) {
  expect_refusal(R"({"rows": [{"models": ["a"]}, {"batchs": [1]}]})",
                 {"row 2", "'batchs'", "one of models, depths,", "batches", "drop_path"});
  expect_refusal(R"({"rows": [{}], "round": 2})", {"'round'", "one of rounds, steps, rows"});
}

TEST(SweepFile, NamesTheKeyWhoseValueIsWrong) {
  expect_refusal(R"({"rows": [{"batches": [1, "two"]}]})", {"row 1: batches", "\"two\""});
  expect_refusal(R"({"rows": [{"batches": 4}]})", {"batches", "a list, got 4"});
  expect_refusal(R"({"rows": [{"batches": []}]})", {"batches", "a list"});
  expect_refusal(R"({"rows": [{"batches": [1.5]}]})", {"a whole number, got 1.5"});
  expect_refusal(R"({"rows": [{"batches": [18446744073709551615]}]})", {"a smaller number"});
  expect_refusal(R"({"rows": [{"threads": [4294967297]}]})", {"a smaller number"});
  expect_refusal(R"({"rows": [{"modes": ["fast"]}]})", {"modes", "'fast'", "checkpoint"});
  expect_refusal(R"({"rows": [{"precisions": ["fp16"]}]})", {"precisions", "fp16"});
  expect_refusal(R"({"rows": [{"budgets": ["200"]}]})", {"budgets", "unit is missing"});
  expect_refusal(R"({"rows": [{"seed": -1}]})", {"seed", "0 or more"});
  expect_refusal(R"({"rows": [{"plain": 1}]})", {"plain", "true or false"});
  expect_refusal(R"({"rows": [{"depths": [[]]}]})", {"depths", "a list"});
  expect_refusal(R"({"rows": [3]})", {"row 1", "an object"});
  expect_refusal(R"({"rows": []})", {"rows", "a list of rows"});
  expect_refusal(R"({})", {"'rows'"});
  expect_refusal(R"([])", {"an object"});
  expect_refusal(R"({"rows": [{"models": ["a"]})", {"expected JSON"});
  expect_refusal("", {"expected JSON"});
  EXPECT_THROW(read_sweep("/no/such/sweep.json"), std::runtime_error);
}

}  // namespace
}  // namespace pareprop::sweep
