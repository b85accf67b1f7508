#include "pareprop/io/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace pareprop::io {
namespace {

std::uint32_t crc_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

// From RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, HasItsKnownValues) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc32c(std::vector(32, std::byte{0})), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector(32, std::byte{0xff})), 0x62a8ab43U);
  std::vector<std::byte> rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
}

}  // namespace
}  // namespace pareprop::io
