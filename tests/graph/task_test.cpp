#include "pareprop/graph/task.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

TEST(Task, ShortLabels) {
  EXPECT_EQ(short_label({.kind = TaskKind::recover, .branch = 6, .needs = {}}), "R F3");
  EXPECT_EQ(short_label({.kind = TaskKind::gradient, .branch = 1, .needs = {}}), "B G0");
  EXPECT_EQ(short_label({.kind = TaskKind::weight_gradient, .branch = 23, .needs = {}}), "W G11");
  EXPECT_EQ(short_label({.kind = TaskKind::recover, .branch = 1, .needs = {}, .stack = 1}),
            "R G0'");
}

}  // namespace
}  // namespace pareprop
