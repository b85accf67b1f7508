#pragma once

#include <gtest/gtest.h>

#include <string>

namespace pareprop::data::testing {

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

}  // namespace pareprop::data::testing
