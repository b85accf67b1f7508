#include "pareprop/sweep/case_groups.h"

#include <gtest/gtest.h>

#include "tests/sweep/sample_results.h"

namespace pareprop::sweep {
namespace {

using sweep::ResultRow;

TEST(CaseGroups, NamesWithoutAPart) {
  const std::string name = "vit_tiny, depth 2+2, batch 4, fp32, 2 threads";
  EXPECT_EQ(without(name, "depth"), "vit_tiny, batch 4, fp32, 2 threads");
  EXPECT_EQ(without(name, "batch"), "vit_tiny, depth 2+2, fp32, 2 threads");
  EXPECT_EQ(without(name, "width"), name);
  EXPECT_EQ(without("a, batch 3", "batch"), "a");
}

TEST(CaseGroups, ShortNamesLeaveOutWhatAllCasesOfAModelHave) {
  std::vector<ResultRow> rows = testing::rows_of("a", 1, 4);
  testing::add(rows, testing::rows_of("a", 1, 8));
  testing::add(rows, testing::rows_of("b", 2));
  const ShortNames names(rows);
  EXPECT_EQ(names("a, depth 4, batch 1, fp32, 2 threads"), "a, depth 4, batch 1, fp32");
  EXPECT_EQ(names("a, batch 1, fp32, 2 threads"), "a, batch 1, fp32");
  EXPECT_EQ(names("b, batch 2, fp32, 2 threads"), "b, batch 2, fp32");
  EXPECT_EQ(names("c, fp32"), "c, fp32");
}

TEST(CaseGroups, AreInTheOrderOfTheirFirstRows) {
  std::vector<ResultRow> rows = testing::rows_of("b_x", 1);
  testing::add(rows, testing::rows_of("a_x", 1));
  testing::add(rows, testing::rows_of("b_y", 1));
  const auto groups = grouped(rows, [](const ResultRow& row) { return row.family; });
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "b");
  EXPECT_EQ(groups[0].rows.size(), 10U);
  EXPECT_EQ(groups[1].name, "a");
}

TEST(CaseGroups, ChosenAreThoseWithBudgetsOrTheLargest) {
  const auto chosen = chosen_cases(testing::sample_results().rows);
  std::vector<std::string> names;
  for (const Group& one : chosen) names.push_back(one.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "vit_cifar, batch 8, fp32, 2 threads", "swin_cifar, batch 8, fp32, 2 threads",
                "mvit_cifar, batch 8, fp32, 2 threads", "roberta_base, batch 8, fp32, 2 threads"}));
  EXPECT_EQ(chosen[0].rows.size(), 8U);
  std::vector<ResultRow> deep = testing::rows_of("a", 4, 8);
  testing::add(deep, testing::rows_of("a", 4, 16));
  testing::add(deep, testing::rows_of("a", 2, 32));
  ASSERT_EQ(chosen_cases(deep).size(), 1U);
  EXPECT_EQ(chosen_cases(deep)[0].rows[0].depth, 16);
}

TEST(CaseGroups, ModesThatWereTimed) {
  std::vector<ResultRow> rows = testing::rows_of("a", 1);
  EXPECT_EQ(modes_of(rows),
            (std::vector<std::string>{"stored", "checkpoint", "reprop", "pareprop", "auto"}));
  rows[1].fits = false;
  rows[2].error = "wrong";
  rows[4].budget_bytes = 5;
  EXPECT_EQ(modes_of(rows), (std::vector<std::string>{"stored", "pareprop", "auto"}));
  EXPECT_EQ(find_mode(rows, "checkpoint"), nullptr);
  EXPECT_EQ(find_mode(rows, "reprop"), nullptr);
  EXPECT_EQ(find_mode(rows, "auto"), nullptr);
  EXPECT_EQ(find_mode(rows, "stored"), &rows[0]);
  EXPECT_EQ(mode_text(rows[4]), "auto 5 B");
}

}  // namespace
}  // namespace pareprop::sweep
