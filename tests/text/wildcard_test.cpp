#include "pareprop/text/wildcard.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

TEST(Wildcard, AStarStandsForAnyCharacters) {
  EXPECT_TRUE(text::fits("blocks.0.*", "blocks.0.f.norm.weight"));
  EXPECT_FALSE(text::fits("blocks.1.*", "blocks.10.f.norm.weight"));
  EXPECT_TRUE(text::fits("blocks.1*", "blocks.10.f.norm.weight"));
  EXPECT_TRUE(text::fits("*.norm.*", "blocks.0.f.norm.weight"));
  EXPECT_FALSE(text::fits("*.norm", "blocks.0.f.norm.weight"));
  EXPECT_TRUE(text::fits("*", ""));
  EXPECT_TRUE(text::fits("**a*", "a"));
  EXPECT_TRUE(text::fits("", ""));
  EXPECT_FALSE(text::fits("", "a"));
  EXPECT_FALSE(text::fits("a.c", "abc")) << "a point is a point";
}

TEST(Wildcard, TheNearestOfSomeNames) {
  const std::vector<std::string> known = {"head.weight", "patch_embed.weight", "blocks.0.f.q",
                                          "blocks.1.f.q"};
  using Names = std::vector<std::string>;
  EXPECT_EQ(text::nearest_to_pattern("block.0.*", known, 1), Names{"blocks.0.f.q"});
  EXPECT_EQ(text::nearest_to_pattern("haed.*", known, 1), Names{"head.weight"});
  EXPECT_EQ(text::nearest_to_pattern("blocks.7.*", known, 2),
            (Names{"blocks.0.f.q", "blocks.1.f.q"}));
  EXPECT_EQ(text::nearest_to_pattern("x", {}, 3), Names{});
}

}  // namespace
}  // namespace pareprop
