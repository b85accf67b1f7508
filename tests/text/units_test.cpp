#include "pareprop/text/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace pareprop::text {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(12.3 * 1024 * 1024), "12.3 MiB");
  EXPECT_EQ(bytes_text(1024.0 * 1024 - 1), "1.0 MiB");  // not 1024.0 KiB
  EXPECT_EQ(bytes_text(5000.0 * 1024 * 1024 * 1024 * 1024), "5000.0 TiB");
}

TEST(Units, Counts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(5717416), "5.7 M");
  EXPECT_EQ(count_text(1844000000), "1.8 G");
}

TEST(Units, Errors) {
  EXPECT_EQ(error_text(0.0), "0");
  EXPECT_EQ(error_text(1.23e-7), "1.2e-07");
  EXPECT_EQ(error_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(error_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Units, Durations) {
  EXPECT_EQ(duration_text(-1.0), "0.00 s");
  EXPECT_EQ(duration_text(0.423), "0.42 s");
  EXPECT_EQ(duration_text(9.999), "10.0 s");
  EXPECT_EQ(duration_text(41.31), "41.3 s");
  EXPECT_EQ(duration_text(59.97), "1 min 0 s");  // not 60.0 s
  EXPECT_EQ(duration_text(200.4), "3 min 20 s");
  EXPECT_EQ(duration_text(3599.6), "1 h 0 min");
  EXPECT_EQ(duration_text(7500.0), "2 h 5 min");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "277777777777 h 47 min");
}

TEST(Units, Percent) { EXPECT_EQ(percent_text(0.9734), "97.3 %"); }

}  // namespace
}  // namespace pareprop::text
