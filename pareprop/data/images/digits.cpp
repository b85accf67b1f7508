#include "pareprop/data/images/digits.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "pareprop/data/images/image_array.h"

// Where digits_embed.S puts data/digits.csv.
extern "C" const char pareprop_digits_csv_begin[];
extern "C" const char pareprop_digits_csv_end[];

namespace pareprop::data {
namespace {

constexpr int kSide = 8;
constexpr int kPixels = kSide * kSide;
constexpr int kPixelMax = 16;
constexpr int kLabelMax = 9;

[[noreturn]] void fail(int line, const std::string& what) {
  throw std::invalid_argument("digits: line " + std::to_string(line) + ": " + what +
                              "; expected 64 pixels (integers 0..16) and a label (0..9), separated "
                              "by commas");
}

// Takes the next of the fields of a line off its front.
std::string_view next_field(std::string_view& rest) {
  const std::size_t comma = rest.find(',');
  const std::string_view field = rest.substr(0, comma);
  rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  return field;
}

int parse_field(std::string_view field, int max, int line, int column) {
  int value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error != std::errc{} || stop != end) {
    fail(line,
         "field " + std::to_string(column) + " is '" + std::string(field) + "', not an integer");
  }
  if (value < 0 || value > max) {
    fail(line, "field " + std::to_string(column) + " is " + std::to_string(value) +
                   ", outside 0.." + std::to_string(max));
  }
  return value;
}

}  // namespace

LabelledImages parse_digits(std::string_view csv) {
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (int line = 1; !csv.empty(); ++line) {
    const std::size_t newline = csv.find('\n');
    std::string_view rest = csv.substr(0, newline);
    csv.remove_prefix(newline == std::string_view::npos ? csv.size() : newline + 1);

    const auto fields = std::count(rest.begin(), rest.end(), ',') + 1;
    if (fields != kPixels + 1) {
      fail(line, rest.empty() ? "it is empty" : "it has " + std::to_string(fields) + " fields");
    }
    for (int k = 1; k <= kPixels; ++k) {
      const int value = parse_field(next_field(rest), kPixelMax, line, k);
      pixels.push_back(static_cast<float>(value) / kPixelMax);
    }
    labels.push_back(parse_field(next_field(rest), kLabelMax, line, kPixels + 1));
  }
  if (labels.empty()) fail(1, "there is no image");

  const auto count = static_cast<std::int64_t>(labels.size());
  LabelledImages result{at::empty({count, 1, kSide, kSide}, at::kFloat),
                        at::empty({count}, at::kLong)};
  std::copy(pixels.begin(), pixels.end(), result.images.mutable_data_ptr<float>());
  std::copy(labels.begin(), labels.end(), result.labels.mutable_data_ptr<std::int64_t>());
  return result;
}

LabelledImages digits() {
  return parse_digits({pareprop_digits_csv_begin, pareprop_digits_csv_end});
}

ImageHalves digit_images() {
  const LabelledImages all = digits();
  ImageArray train{
      static_cast<int>(all.images.size(2)), static_cast<int>(all.images.size(3)), 1, {}, {}};
  ImageArray test = train;
  const std::int64_t pixels = all.images[0].numel();
  const float* pixel = all.images.const_data_ptr<float>();
  for (std::int64_t i = 0; i < all.labels.numel(); ++i) {
    ImageArray& half = i % 6 == 5 ? test : train;
    half.labels.push_back(static_cast<int>(all.labels.const_data_ptr<std::int64_t>()[i]));
    for (std::int64_t p = 0; p < pixels; ++p) {
      half.pixels.push_back(static_cast<std::uint8_t>(std::lround(*pixel++ * 255)));
    }
  }
  const auto names = numbered_classes(10);
  return {std::make_shared<ArrayImages>("digits (train)", std::move(train), names),
          std::make_shared<ArrayImages>("digits (test)", std::move(test), names)};
}

}  // namespace pareprop::data
