#include "pareprop/text/nearest.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

TEST(Nearest, TheNearestOfSomeWords) {
  const std::vector<std::string> known = {"--mode", "--model", "--batch", "--learning-rate"};
  EXPECT_EQ(text::nearest("--modle", known), "--model");
  EXPECT_EQ(text::nearest("--mod", known), "--mode");
  EXPECT_EQ(text::nearest("--bacth", known), "--batch");
  EXPECT_EQ(text::nearest("--learnin_rate", known), "--learning-rate");
  EXPECT_EQ(text::nearest("x", known), "");
  EXPECT_EQ(text::nearest("--output-dir", {"--image-size"}), "") << "more than a third differs";
  EXPECT_EQ(text::nearest(std::string(1000, 'x'), known), "");
}

}  // namespace
}  // namespace pareprop
