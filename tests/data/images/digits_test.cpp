#include "pareprop/data/images/digits.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

// A line of 64 equal pixels and a label, without its newline.
std::string line(const std::string& pixel, const std::string& label) {
  std::string text;
  for (int k = 0; k < 64; ++k) text += pixel + ",";
  return text + label;
}

std::string digits_error(const std::string& csv) {
  try {
    parse_digits(csv);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Digits, HaveTheShapesAndTypesPromised) {
  const LabelledImages data = digits();
  EXPECT_EQ(data.images.sizes(), (at::IntArrayRef{1797, 1, 8, 8}));
  EXPECT_EQ(data.labels.sizes(), (at::IntArrayRef{1797}));
  EXPECT_EQ(data.images.scalar_type(), at::kFloat);
  EXPECT_EQ(data.labels.scalar_type(), at::kLong);
}

// As the description of the data set says.
TEST(Digits, HaveTheKnownImagesPerClass) {
  const LabelledImages data = digits();
  std::array<int, 10> count{};
  for (std::int64_t n = 0; n < data.labels.numel(); ++n) {
    ++count.at(static_cast<std::size_t>(data.labels.const_data_ptr<std::int64_t>()[n]));
  }
  EXPECT_EQ(count, (std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

// Sums over the source file; the second gives every pixel of an image a weight of its own, so a
// transposed or shifted image does not pass.
TEST(Digits, HaveTheKnownPixelSums) {
  const LabelledImages data = digits();
  const float* pixel = data.images.const_data_ptr<float>();
  std::int64_t sum = 0;
  std::int64_t weighted = 0;
  for (std::int64_t i = 0; i < data.images.numel(); ++i) {
    ASSERT_GE(pixel[i], 0.0f);
    ASSERT_LE(pixel[i], 1.0f);
    const auto value = static_cast<std::int64_t>(std::lround(pixel[i] * 16));
    ASSERT_EQ(static_cast<float>(value) / 16, pixel[i]) << "at " << i;
    sum += value;
    weighted += (i % 64 + 1) * value;
  }
  EXPECT_EQ(sum, 561718);
  EXPECT_EQ(weighted, 18222371);
}

TEST(Digits, AreNewAtEachCall) {
  const LabelledImages first = digits();
  first.images.mutable_data_ptr<float>()[0] = 7;
  EXPECT_EQ(digits().images.const_data_ptr<float>()[0], 0.0f);
}

TEST(ParseDigits, ReadsLinesInOrderWithOrWithoutTheLastNewline) {
  for (const char* end : {"", "\n"}) {
    const LabelledImages data = parse_digits(line("0", "3") + "\n" + line("16", "9") + end);
    ASSERT_EQ(data.labels.numel(), 2);
    EXPECT_EQ(data.labels.const_data_ptr<std::int64_t>()[0], 3);
    EXPECT_EQ(data.labels.const_data_ptr<std::int64_t>()[1], 9);
    EXPECT_EQ(data.images.const_data_ptr<float>()[63], 0.0f);
    EXPECT_EQ(data.images.const_data_ptr<float>()[64], 1.0f);
  }
}

struct Malformed {
  const char* name;
  std::string csv;
  const char* what;
};

void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }

class ParseDigitsErrors : public testing::TestWithParam<Malformed> {};

TEST_P(ParseDigitsErrors, NameTheLineAndTheFault) {
  EXPECT_NE(digits_error(GetParam().csv).find(GetParam().what), std::string::npos)
      << digits_error(GetParam().csv);
}

const std::string kGood = line("1", "2") + "\n";

INSTANTIATE_TEST_SUITE_P(
    All, ParseDigitsErrors,
    testing::Values(
        Malformed{"Empty", "", "line 1: there is no image"},
        Malformed{"BlankLine", kGood + "\n" + kGood, "line 2: it is empty"},
        Malformed{"BlankLastLine", kGood + "\n", "line 2: it is empty"},
        Malformed{"TooFew", kGood + kGood + "1,2,3\n", "line 3: it has 3 fields"},
        Malformed{"TooMany", line("1", "2") + ",2\n", "line 1: it has 66 fields"},
        Malformed{"PixelTooLarge", kGood + line("17", "2"), "line 2: field 1 is 17, outside 0..16"},
        Malformed{"PixelNegative", line("-1", "2"), "line 1: field 1 is -1, outside 0..16"},
        Malformed{"LabelTooLarge", line("1", "10"), "line 1: field 65 is 10, outside 0..9"},
        Malformed{"NotANumber", line("x", "2"), "line 1: field 1 is 'x', not an integer"},
        Malformed{"Fraction", line("1.5", "2"), "line 1: field 1 is '1.5', not an integer"},
        Malformed{"Space", line(" 1", "2"), "line 1: field 1 is ' 1', not an integer"},
        Malformed{"MissingField", line("", "2"), "line 1: field 1 is '', not an integer"},
        Malformed{"MissingLabel", line("1", ""), "line 1: field 65 is '', not an integer"},
        Malformed{"CarriageReturn", line("1", "2") + "\r\n", "line 1: field 65 is '2\r'"},
        Malformed{"Overflow", line("99999999999", "2"), "line 1: field 1 is '99999999999'"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace pareprop::data
