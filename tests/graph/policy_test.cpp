#include "pareprop/graph/policy.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace pareprop {
namespace {

TEST(Policy, NamesAndParsesBack) {
  for (Policy policy : kPolicies) {
    EXPECT_EQ(parse_policy(name(policy)), policy);
  }
  EXPECT_EQ(name(Policy::anchor), "anchor");
}

TEST(Policy, EveryModeHasItsOwnNameAndParsesBack) {
  std::set<std::string_view> names;
  for (Mode mode : all_modes()) {
    EXPECT_EQ(parse_mode(name(mode)), mode);
    names.insert(name(mode));
  }
  EXPECT_EQ(names,
            (std::set<std::string_view>{"stored", "checkpoint", "reprop", "pareprop", "auto"}));
}

TEST(Policy, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* wrong : {"", "Store", "stored ", "auto"}) {
    EXPECT_THROW(parse_policy(wrong), std::invalid_argument) << wrong;
  }
  try {
    parse_mode("automatic");
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "unknown mode 'automatic': expected one of stored, checkpoint, reprop, pareprop, "
                 "auto");
  }
}

}  // namespace
}  // namespace pareprop
