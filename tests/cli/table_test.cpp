#include "cli/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop::cli {
namespace {

TEST(Table, NumbersLineUpOnTheRightAndWordsOnTheLeft) {
  Table table({{"mode", Align::left}, {"ms"}, {"note", Align::left}});
  table.add_row({"stored", "7.5", "x"});
  table.add_row({"a", "1234.0", ""});
  EXPECT_EQ(table.text(),
            "mode        ms  note\n"
            "------  ------  ----\n"
            "stored     7.5  x\n"
            "a       1234.0\n");
}

TEST(Table, WithoutRowsHasTitlesOnly) {
  EXPECT_EQ(Table({{"a"}, {"bc"}}).text(), "a  bc\n-  --\n");
}

TEST(Table, CountsLettersNotBytes) {
  Table table({{"µs"}, {"n"}});
  table.add_row({"12", "1"});
  EXPECT_EQ(table.text(), "µs  n\n--  -\n12  1\n");
}

TEST(Table, RefusesARowOfAnotherLength) {
  Table table({{"a"}, {"b"}});
  EXPECT_THROW(table.add_row({"1"}), std::invalid_argument);
  EXPECT_THROW(table.add_row({"1", "2", "3"}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::cli
