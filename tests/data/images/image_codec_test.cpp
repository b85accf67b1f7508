#include "pareprop/data/images/image_codec.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::bytes_of;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::jpeg_bytes;
using pareprop::data::testing::noise;
using pareprop::data::testing::png_bytes;
using pareprop::data::testing::slope;

Image decode(const std::string& bytes, const SmallestSize& smallest = {}) {
  return decode_image(bytes_of(bytes), smallest);
}

std::string codec_error(const std::string& bytes, std::int64_t max_pixels = kMaxImagePixels) {
  return message_of<std::runtime_error>([&] { decode_image(bytes_of(bytes), {}, max_pixels); });
}

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a.channels, b.channels);
  int largest = 0;
  for (std::size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const auto sum =
      crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked +
         big_endian(static_cast<std::uint32_t>(sum));
}

std::string deflated(const std::string& content) {
  std::string packed(compressBound(content.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(content.data()), content.size());
  packed.resize(size);
  return packed;
}

// How the pixels are written, and chunks that come before them. By default 8 bits of grey.
struct PngKind {
  char bits = 8, colour = 0;
  std::string chunks = {};
};

// A PNG of one IDAT chunk. Each of its rows begins with the number of its filter.
std::string png(std::uint32_t width, std::uint32_t height, const std::string& rows,
                const PngKind& kind = {}) {
  const std::string header{kind.bits, kind.colour, 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", big_endian(width) + big_endian(height) + header) +
         kind.chunks + chunk("IDAT", deflated(rows)) + chunk("IEND", "");
}

std::string row(std::initializer_list<int> bytes) {
  std::string text(1, '\0');
  for (const int byte : bytes) text += static_cast<char>(byte);
  return text;
}

TEST(DecodePng, GivesThePixelsThatWereWritten) {
  for (const int channels : {1, 3}) {
    const Image image = noise(13, 7, channels, 1);
    EXPECT_EQ(decode(png_bytes(image)), image);
  }
}

TEST(DecodePng, LeavesOpacityOut) {
  const Image grey = noise(5, 4, 1, 2), rgb = noise(5, 4, 3, 3);
  Image with_opacity{5, 4, 2, {}};
  for (const auto level : grey.pixels)
    with_opacity.pixels.insert(with_opacity.pixels.end(), {level, 9});
  EXPECT_EQ(decode(png_bytes(with_opacity)), grey);
  with_opacity = {5, 4, 4, {}};
  for (std::size_t i = 0; i < rgb.pixels.size(); i += 3) {
    with_opacity.pixels.insert(with_opacity.pixels.end(),
                               {rgb.pixels[i], rgb.pixels[i + 1], rgb.pixels[i + 2], 7});
  }
  EXPECT_EQ(decode(png_bytes(with_opacity)), rgb);
}

TEST(DecodePng, ReadsEveryKindOfPixel) {
  const auto two = [](const std::string& rows, const PngKind& kind) {
    return decode(png(2, 1, rows, kind)).pixels;
  };
  const std::vector<std::uint8_t> grey{0x12, 0xab}, rgb{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(two(row({0x40}), {1, 0}), (std::vector<std::uint8_t>{0, 255}));
  EXPECT_EQ(two(row({0x90}), {2, 0}), (std::vector<std::uint8_t>{2 * 85, 85}));
  EXPECT_EQ(two(row({0x3f}), {4, 0}), (std::vector<std::uint8_t>{3 * 17, 255}));
  EXPECT_EQ(two(row({0x12, 0xab}), {8, 0}), grey);
  EXPECT_EQ(two(row({0x12, 99, 0xab, 99}), {16, 0}), grey);
  EXPECT_EQ(two(row({0x12, 99, 0xab, 99}), {8, 4}), grey);
  EXPECT_EQ(two(row({0x12, 99, 99, 99, 0xab, 99, 99, 99}), {16, 4}), grey);
  EXPECT_EQ(two(row({1, 2, 3, 4, 5, 6}), {8, 2}), rgb);
  EXPECT_EQ(two(row({1, 99, 2, 99, 3, 99, 4, 99, 5, 99, 6, 99}), {16, 2}), rgb);
  EXPECT_EQ(two(row({1, 2, 3, 99, 4, 5, 6, 99}), {8, 6}), rgb);
  EXPECT_EQ(two(row({1, 99, 2, 99, 3, 99, 99, 99, 4, 99, 5, 99, 6, 99, 99, 99}), {16, 6}), rgb);
  const std::string palette = chunk("PLTE", "\4\5\6\1\2\3");
  EXPECT_EQ(two(row({0x80}), {1, 3, palette}), rgb);
  EXPECT_EQ(two(row({1, 0}), {8, 3, palette + chunk("tRNS", "\x7f")}), rgb);
  EXPECT_EQ(two(row({0x12, 0xab}), {8, 0, chunk("tRNS", std::string("\0\x12", 2))}), grey);
}

TEST(DecodePng, RefusesDamage) {
  const std::string good = png(2, 1, std::string("\0ab", 3));
  EXPECT_EQ(decode(good), (Image{1, 2, 1, {'a', 'b'}}));
  for (std::size_t length = 8; length < good.size(); ++length) {
    expect_part(codec_error(good.substr(0, length)), "the PNG image is damaged: it is cut off");
  }
  for (std::size_t i = 12; i < good.size() - 4; ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    expect_part(codec_error(damaged), "the PNG image is damaged");
  }
  expect_part(codec_error(png(2, 2, std::string("\0ab", 3))), "damaged");
}

TEST(DecodePng, RefusesHugeImagesBeforeTheyAreDecoded) {
  expect_part(codec_error(png(60000, 60000, "x")),
              "the image is 60000 x 60000 pixels; expected 1 to 100000000 pixels");
  expect_part(codec_error(png(16000, 16000, "x")),
              "the image is 16000 x 16000 pixels; expected 1 to 100000000 pixels");
  expect_part(codec_error(png(3, 3, std::string(12, '\0')), 8), "3 x 3 pixels; expected 1 to 8");
  EXPECT_EQ(decode_image(bytes_of(png(3, 3, std::string(12, '\0'))), {}, 9).height, 3);
}

// 64 MB of zeros for an image of one pixel.
TEST(DecodePng, RefusesDataThatUnpacksToMuchMoreThanTheImage) {
  const std::string bomb = png(1, 1, std::string(std::size_t{64} << 20, '\0'));
  EXPECT_LT(bomb.size(), 100'000u);
  expect_part(codec_error(bomb), "the PNG image is damaged");
}

TEST(DecodePng, RefusesDataThatCannotUnpackToTheImage) {
  expect_part(codec_error(png(10'000, 10'000, "x")),
              "the PNG image is damaged: it has too little data for its size");
}

TEST(DecodePng, DoesNotUnpackTexts) {
  const std::string text = "Comment" + std::string(2, '\0') + deflated(std::string(1 << 22, 'x'));
  std::string texts;
  for (int i = 0; i < 1001; ++i) texts += chunk("zTXt", text);
  EXPECT_EQ(decode(png(1, 1, row({7}), {8, 0, texts})), (Image{1, 1, 1, {7}}));
}

TEST(DecodePng, RefusesWrongCheckSumsOfOtherChunks) {
  const std::string text = chunk("tEXt", std::string("Comment\0x", 9));
  const std::string good = png(1, 1, row({7}), {8, 0, text});
  EXPECT_EQ(decode(good), (Image{1, 1, 1, {7}}));
  std::string damaged = good;
  damaged[good.find("Comment")] = 'D';
  expect_part(codec_error(damaged), "the PNG image is damaged: the checksum of a chunk is wrong");
}

TEST(DecodeJpeg, IsCloseToWhatWasWritten) {
  for (const int channels : {1, 3}) {
    const Image image = slope(40, 56, channels);
    EXPECT_LE(largest_difference(decode(jpeg_bytes(image)), image), 6);
  }
}

TEST(DecodeJpeg, TurnsInvertedCmykIntoRgb) {
  Image cmyk{8, 8, 4, {}}, rgb{8, 8, 3, {}};
  for (int i = 0; i < 64; ++i) {
    cmyk.pixels.insert(cmyk.pixels.end(), {255, 128, 0, 200});
    rgb.pixels.insert(rgb.pixels.end(), {200, 100, 0});
  }
  EXPECT_LE(largest_difference(decode(jpeg_bytes(cmyk)), rgb), 2);
}

TEST(DecodeJpeg, IsDecodedInTheSmallestSizeThatServes) {
  const std::string bytes = jpeg_bytes(slope(160, 240, 3));
  const auto size = [&](ImageSize wanted) {
    return decode(bytes,
                  [=](ImageSize full) {
                    EXPECT_EQ(full, (ImageSize{160, 240}));
                    return wanted;
                  })
        .size();
  };
  EXPECT_EQ(size({160, 240}), (ImageSize{160, 240}));
  EXPECT_EQ(size({141, 10}), (ImageSize{160, 240}));
  EXPECT_EQ(size({140, 10}), (ImageSize{140, 210}));
  EXPECT_EQ(size({80, 120}), (ImageSize{80, 120}));
  EXPECT_EQ(size({80, 121}), (ImageSize{100, 150}));
  EXPECT_EQ(size({1, 1}), (ImageSize{20, 30}));
  EXPECT_EQ(size({1000, 1000}), (ImageSize{160, 240}));
  const Image small = decode(bytes, [](ImageSize) { return ImageSize{80, 120}; });
  EXPECT_LE(largest_difference(small, slope(80, 120, 3)), 6);
}

TEST(DecodeJpeg, RefusesDamageAndHugeImages) {
  const std::string good = jpeg_bytes(noise(32, 32, 3, 4));
  expect_part(codec_error(good.substr(0, good.size() / 2)),
              "the JPEG image is damaged: Premature end");
  expect_part(codec_error(good.substr(0, 20)), "the JPEG image is damaged");
  expect_part(codec_error(good, 1000), "32 x 32 pixels; expected 1 to 1000 pixels");
  std::string huge = good;
  const std::size_t frame = good.find("\xff\xc0") + 5;
  huge.replace(frame, 4, "\xea\x60\xea\x60");
  expect_part(codec_error(huge), "60000 x 60000 pixels");
}

TEST(DecodeImage, RefusesOtherFormats) {
  expect_part(codec_error(""), "the file is empty");
  expect_part(codec_error("GIF89a"), "neither a JPEG nor a PNG");
}

}  // namespace
}  // namespace pareprop::data
