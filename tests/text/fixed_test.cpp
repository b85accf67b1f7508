#include "pareprop/text/fixed.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>

namespace pareprop {
namespace {

TEST(Fixed, NumbersInEveryLocale) {
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // where the system has it
  EXPECT_EQ(text::fixed(1.5, 2), "1.50");
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(text::fixed(0.0, 0), "0");
  EXPECT_EQ(text::fixed(-2.345, 1), "-2.3");
  EXPECT_EQ(text::fixed(std::numeric_limits<double>::max(), 3).size(), 309U + 4U);
}

TEST(Fixed, ShortNumbers) {
  EXPECT_EQ(text::short_number(0.25, 6), "0.25");
  EXPECT_EQ(text::short_number(1e6, 3), "1e6");
  EXPECT_EQ(text::short_number(-3e-5, 3), "-3e-5");
  EXPECT_EQ(text::short_number(1.5e-110, 3), "1.5e-110");
  EXPECT_EQ(text::short_number(0.0, 3), "0");
}

}  // namespace
}  // namespace pareprop
