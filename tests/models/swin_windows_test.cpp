#include "pareprop/models/swin_windows.h"

#include <gtest/gtest.h>

namespace pareprop::models {
namespace {

std::vector<std::int64_t> values(const at::Tensor& t) {
  const at::Tensor flat = t.to(at::kLong).contiguous();
  const auto* data = flat.const_data_ptr<std::int64_t>();
  return {data, data + flat.numel()};
}

using Longs = std::vector<std::int64_t>;

TEST(SwinWindows, AreCutDownToTheMapAndNotShiftedThere) {
  const Window large = Window::fitting(4, 7, true), equal = Window::fitting(7, 7, true);
  EXPECT_EQ(large.size, 4);
  EXPECT_EQ(large.shift, 0);
  EXPECT_EQ(equal.size, 7);
  EXPECT_EQ(equal.shift, 0);
  const Window small = Window::fitting(8, 7, true);
  EXPECT_EQ(small.shift, 3);
  EXPECT_EQ(small.padded(), 14);
  EXPECT_EQ(small.count(), 4);
  EXPECT_EQ(Window::fitting(8, 7, false).shift, 0);
}

TEST(SwinWindows, MapRollsPadsAndCuts) {
  EXPECT_EQ(values(window_map({.side = 4, .size = 2}).source),
            (Longs{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  EXPECT_EQ(values(window_map({.side = 4, .size = 2, .shift = 1}).source),
            (Longs{5, 6, 9, 10, 7, 4, 11, 8, 13, 14, 1, 2, 15, 12, 3, 0}));
  EXPECT_EQ(values(window_map({.side = 3, .size = 2}).source),
            (Longs{0, 1, 3, 4, 2, -1, 5, -1, 6, 7, -1, -1, 8, -1, -1, -1}));
  EXPECT_EQ(values(window_map({.side = 2, .size = 2}, true).source), (Longs{0, 2, 1, 3}));
}

TEST(SwinWindows, RelativeIndexCountsDistances) {
  EXPECT_EQ(values(relative_index({.side = 2, .size = 2})),
            (Longs{4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4}));
}

TEST(SwinWindows, MaskPartsTokensThatRollingBroughtTogether) {
  EXPECT_FALSE(shift_mask({.side = 4, .size = 2}, at::kFloat).defined());
  const at::Tensor mask = shift_mask({.side = 4, .size = 2, .shift = 1}, at::kDouble);
  EXPECT_EQ(mask.sizes(), (at::IntArrayRef{4, 4, 4}));
  EXPECT_EQ(mask.scalar_type(), at::kDouble);
  const Longs none(16, 0);
  EXPECT_EQ(values(mask[0]), none);
  const std::int64_t x = -100;
  EXPECT_EQ(values(mask[1]), (Longs{0, x, 0, x, x, 0, x, 0, 0, x, 0, x, x, 0, x, 0}));
  EXPECT_EQ(values(mask[2]), (Longs{0, 0, x, x, 0, 0, x, x, x, x, 0, 0, x, x, 0, 0}));
  EXPECT_EQ(values(mask[3]), (Longs{0, x, x, x, x, 0, x, x, x, x, 0, x, x, x, x, 0}));
}

}  // namespace
}  // namespace pareprop::models
