#include "pareprop/data/gzip.h"

#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::bytes_of;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::gzip_bytes;

TEST(Gunzip, UnpacksOneAndSeveralMembers) {
  const std::string content(300000, 'x');
  const auto unpack = [](const std::string& packed, std::size_t limit) {
    const auto bytes = gunzip(bytes_of(packed), limit);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(unpack(gzip_bytes(content), content.size()), content);
  EXPECT_EQ(unpack(gzip_bytes(content) + gzip_bytes("more"), 1 << 20), content + "more");
  EXPECT_EQ(unpack(gzip_bytes(""), 0), "");
}

TEST(Gunzip, RefusesDamageExcessAndCutOff) {
  const std::string content(300000, 'x');
  const std::string packed = gzip_bytes(content);
  const auto error = [](const std::string& bytes, std::size_t limit = 1 << 20) {
    return message_of<std::runtime_error>([&] { gunzip(bytes_of(bytes), limit); });
  };
  expect_part(error(packed, content.size() - 1), "unpacks to more than 299999 bytes");
  expect_part(error(packed.substr(0, packed.size() - 1)), "cut off");
  expect_part(error(packed.substr(0, 10)), "cut off");
  expect_part(error(packed + "x"), "followed by other bytes");
  std::string damaged = packed;
  damaged[packed.size() - 6] = static_cast<char>(damaged[packed.size() - 6] + 1);  // check sum
  expect_part(error(damaged), "damaged");
}

}  // namespace
}  // namespace pareprop::data
