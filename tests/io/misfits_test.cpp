#include "pareprop/io/misfits.h"

#include <gtest/gtest.h>

namespace pareprop::io {
namespace {

using enum Misfits::Kind;

Misfits misfits(int of_each) {
  Misfits found;
  for (int i = 0; i < of_each; ++i) {
    const std::string number = std::to_string(i);
    found.add(missing, "m" + number + " is missing");
    found.add(not_expected, "n" + number + " is not expected");
    found.add(different, "d" + number + " is [2], expected [3]");
  }
  return found;
}

TEST(Misfits, AFewAreListed) {
  EXPECT_TRUE(Misfits().empty());
  EXPECT_EQ(misfits(1).text(),
            ":\n  m0 is missing\n  n0 is not expected\n  d0 is [2], expected [3]");
}

TEST(Misfits, ManyAreCountedWithFiveExamplesOfAllKinds) {
  EXPECT_EQ(
      misfits(60).text(),
      ": 60 tensors have a different shape, type or content, 60 are missing, 60 are not expected; "
      "for example\n  d0 is [2], expected [3]\n  m0 is missing\n  n0 is not expected\n  d1 is "
      "[2], expected [3]\n  m1 is missing\n  and 175 more");
  Misfits one_kind;
  for (int i = 0; i < 7; ++i) one_kind.add(missing, std::to_string(i));
  EXPECT_EQ(one_kind.text(),
            ": 7 tensors are missing; for example\n  0\n  1\n  2\n  3\n  4\n  and 2 more");
}

}  // namespace
}  // namespace pareprop::io
