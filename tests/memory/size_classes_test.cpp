#include "pareprop/memory/size_classes.h"

#include <gtest/gtest.h>

#include <random>

namespace pareprop::memory {
namespace {

TEST(SizeClasses, AscendAndHoldTheirOwnBytes) {
  EXPECT_EQ(class_bytes(0), kSmallestLarge);
  EXPECT_EQ(class_bytes(kSizeClasses - 1), kLargest);
  for (int each = 0; each < kSizeClasses; ++each) {
    EXPECT_EQ(size_class(class_bytes(each)), each);
    EXPECT_EQ(class_bytes(each) % 4096, 0u);
    if (each == 0) continue;
    EXPECT_LT(class_bytes(each - 1), class_bytes(each));
    EXPECT_EQ(size_class(class_bytes(each - 1) + 1), each);
  }
}

TEST(SizeClasses, PowersOfTwoWasteNothing) {
  for (std::size_t bytes = kSmallestLarge; bytes <= kLargest; bytes *= 2) {
    EXPECT_EQ(class_bytes(size_class(bytes)), bytes);
  }
}

TEST(SizeClasses, WasteLessThanAnEighth) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100000; ++i) {
    const int power = 16 + static_cast<int>(random() % 30);
    const std::size_t low = std::size_t{1} << power;
    const std::size_t bytes = low + random() % low;
    const std::size_t capacity = class_bytes(size_class(bytes));
    ASSERT_GE(capacity, bytes);
    ASSERT_LT(capacity - bytes, bytes / 8 + 1) << bytes;
  }
}

}  // namespace
}  // namespace pareprop::memory
