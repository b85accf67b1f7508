#include "pareprop/sweep/quantile.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

TEST(Quantile, LiesBetweenValuesInProportion) {
  EXPECT_EQ(quantile({3.0, 1.0, 2.0}, 0.5), 2.0);
  EXPECT_EQ(quantile({4.0, 1.0, 2.0, 3.0}, 0.5), 2.5);
  EXPECT_EQ(quantile({30.0, 10.0, 20.0}, 0.0), 10.0);
  EXPECT_EQ(quantile({30.0, 10.0, 20.0}, 1.0), 30.0);
  EXPECT_DOUBLE_EQ(quantile({0.0, 10.0}, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(quantile({0.0, 10.0, 20.0, 30.0, 40.0}, 0.9), 36.0);
}

TEST(Quantile, OfOneAndOfNone) {
  for (const double share : {0.0, 0.3, 1.0}) {
    EXPECT_EQ(quantile({7.0}, share), 7.0);
    EXPECT_EQ(quantile({}, share), 0.0);
  }
}

}  // namespace
}  // namespace pareprop
