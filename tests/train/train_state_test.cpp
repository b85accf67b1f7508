#include "pareprop/train/train_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "pareprop/io/checksum.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::train {
namespace {

Manifest sample() {
  return {.state = {.step = 1200,
                    .data_position = 9007199254740993,
                    .seed = std::numeric_limits<std::uint64_t>::max(),
                    .world = 3,
                    .config = "{\n \"lr\": 0.1, \"name\": \"\u00e9\" }\n",
                    .losses = {{1, 0.1}, {2, 1e-300}, {3, std::nan("")}},
                    .versions = {{"a", "1"}}},
          .files = {{"weights.safetensors", {.size = 5, .checksum = "00ff"}}}};
}

TEST(Manifest, ComesBackAsItWas) {
  const Manifest back = parse_manifest(format_manifest(sample()));
  const Manifest expected = sample();
  EXPECT_EQ(back.state.step, expected.state.step);
  EXPECT_EQ(back.state.data_position, expected.state.data_position);
  EXPECT_EQ(back.state.seed, expected.state.seed);
  EXPECT_EQ(back.state.world, expected.state.world);
  EXPECT_EQ(back.state.config, expected.state.config);
  EXPECT_EQ(back.state.versions, expected.state.versions);
  ASSERT_EQ(back.state.losses.size(), 3U);
  EXPECT_EQ(back.state.losses[0].loss, 0.1);
  EXPECT_EQ(back.state.losses[1].loss, 1e-300);
  EXPECT_TRUE(std::isnan(back.state.losses[2].loss));
  EXPECT_EQ(back.files.at("weights.safetensors").size, 5U);
  EXPECT_EQ(back.files.at("weights.safetensors").checksum, "00ff");
}

TEST(Manifest, AnyFlippedBitIsFoundOrChangesNothing) {
  const std::string whole = format_manifest(sample());
  for (std::size_t i = 0; i < 8 * whole.size(); ++i) {
    std::string text = whole;
    text[i / 8] = static_cast<char>(text[i / 8] ^ (1 << (i % 8)));
    try {
      EXPECT_EQ(format_manifest(parse_manifest(text)), whole) << "bit " << i;
    } catch (const std::runtime_error&) {  // found
    }
  }
}

TEST(Manifest, OfAnythingElseIsRefused) {
  const std::string whole = format_manifest(sample());
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    EXPECT_THROW(parse_manifest(whole.substr(0, size)), std::runtime_error) << size;
  }
  for (const char* text : {"[]", "{}", "null", "{\"format\": 2}", "{\"format\": \"1\"}"}) {
    EXPECT_THROW(parse_manifest(text), std::runtime_error) << text;
  }
}

TEST(Manifest, OfAnotherVersionIsRefusedForThat) {
  const auto with_format = [](int format) {
    auto whole = nlohmann::json::parse(format_manifest(sample()));
    whole.erase("xxh64");
    whole["format"] = format;
    io::Checksum sum;
    sum.update(whole.dump());
    whole["xxh64"] = io::hex(sum.value());
    return whole.dump();
  };
  EXPECT_NO_THROW(parse_manifest(with_format(1))) << "the checksum is valid";
  for (const int format : {2, 0, -1}) {
    EXPECT_EQ(
        io::testing::message_of<std::runtime_error>([&] { parse_manifest(with_format(format)); }),
        "the format is " + std::to_string(format) +
            ", but this program reads format 1: another version wrote the file");
  }
}

TEST(Manifest, ConfigurationsAreText) {
  Manifest manifest = sample();
  manifest.state.config = std::string(1, static_cast<char>(0xff));
  EXPECT_THROW(format_manifest(manifest), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::train
