#include "pareprop/data/text/masked_text.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/data/text/small_tables.h"

namespace pareprop::data {
namespace {

// tokenizer_python_test.py compares with Hugging Face's.
TEST(MaskedText, AMaskTakesTheSpaceBeforeIt) {
  const Tokenizer tokenizer(testing::small_tables());
  const std::int64_t mask = tokenizer.mask(), a = tokenizer.encode("a")[0],
                     space = tokenizer.encode(" ")[0];
  const auto framed = [&](std::vector<std::int64_t> ids) {
    ids.insert(ids.begin(), tokenizer.start());
    ids.push_back(tokenizer.end());
    return ids;
  };
  EXPECT_EQ(encode_masked(tokenizer, "a <mask>"), framed({a, mask}));
  EXPECT_EQ(encode_masked(tokenizer, "a\n \u3000<mask>"), framed({a, mask}));
  EXPECT_EQ(encode_masked(tokenizer, "a<mask> a"), framed({a, mask, space, a}));
  EXPECT_EQ(encode_masked(tokenizer, " <mask> <mask>"), framed({mask, mask}));
  EXPECT_EQ(encode_masked(tokenizer, "a "), framed({a, space}));
  EXPECT_THROW(encode_masked(tokenizer, "\xff <mask>"), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::data
