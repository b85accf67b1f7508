#include "pareprop/data/images/image_batches.h"

#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "pareprop/data/images/image_folder.h"
#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::expect_part;

// Image i is noise of its own; the first pixel is i. Those of `broken` cannot be read.
class Numbered final : public ImageSource {
 public:
  explicit Numbered(int size, std::set<std::int64_t> broken = {}, int label_shift = 0)
      : size_(size), broken_(std::move(broken)), label_shift_(label_shift) {}
  std::int64_t size() const override { return size_; }
  std::int64_t label(std::int64_t i) const override { return i % 3 + label_shift_; }
  Image load(std::int64_t i, const SmallestSize&) const override {
    if (broken_.contains(i)) throw std::runtime_error(name(i) + " is broken");
    Image image = testing::noise(8, 8, 3, static_cast<std::uint64_t>(i));
    image.pixels[0] = static_cast<std::uint8_t>(i);
    return image;
  }
  std::string name(std::int64_t i) const override { return "image " + std::to_string(i); }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  int size_;
  std::set<std::int64_t> broken_;
  int label_shift_;
  std::vector<std::string> names_{"a", "b", "c"};
};

ImageBatchesOptions plain_options(std::int64_t batch, bool training) {
  ImageBatchesOptions options{.batch = batch, .input = {8, 8}, .training = training};
  options.augment.mean = {0.0f};
  options.augment.deviation = {1.0f / 255};
  return options;
}

ImageBatchesOptions lively(std::int64_t batch) {
  ImageBatchesOptions options = plain_options(batch, true);
  options.seed = 7;
  options.augment.crop = Crop::resized;
  options.augment.flip = 0.5;
  options.augment.erase = 0.5;
  options.mixing = {.mixup = 0.8, .cutmix = 1.0, .probability = 0.8, .label_smoothing = 0.1};
  return options;
}

ImageBatches numbered_images(ImageBatchesOptions options, int images,
                             std::set<std::int64_t> broken = {}) {
  return {std::make_shared<Numbered>(images, std::move(broken)), std::move(options)};
}

std::vector<int> numbers_of(const Batch& batch) {
  std::vector<int> numbers;
  for (std::int64_t i = 0; i < batch.input.size(0); ++i) {
    numbers.push_back(static_cast<int>(batch.input[i][0][0][0].item<float>() + 0.5f));
  }
  return numbers;
}

TEST(ImageBatches, OfTrainingTakeEveryImageOnceInAnOrderOfEachEpoch) {
  const auto made = numbered_images(plain_options(4, true), 22);
  ASSERT_EQ(made.per_epoch(), 5);
  std::vector<std::vector<int>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> numbers;
    for (int n = 0; n < 5; ++n) {
      const Batch batch = made.make(epoch * 5 + n);
      ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{4, 3, 8, 8}));
      ASSERT_EQ(batch.target.scalar_type(), at::kLong);
      EXPECT_FALSE(batch.mask.defined());
      const auto some = numbers_of(batch);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(batch.target[i].item<std::int64_t>(), some[static_cast<std::size_t>(i)] % 3);
      }
      numbers.insert(numbers.end(), some.begin(), some.end());
    }
    EXPECT_EQ((std::set<int>(numbers.begin(), numbers.end()).size()), 20u);
    epochs.push_back(numbers);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  auto other_seed = plain_options(4, true);
  other_seed.seed = 1;
  EXPECT_NE(numbers_of(numbered_images(other_seed, 22).make(0)), numbers_of(made.make(0)));
}

TEST(ImageBatches, AreAFunctionOfTheirNumber) {
  const auto a = numbered_images(lively(6), 40), b = numbered_images(lively(6), 40);
  b.make(9);
  for (const std::int64_t number : {5, 0, 17}) {
    const Batch first = a.make(number), second = b.make(number);
    EXPECT_TRUE(first.input.equal(second.input));
    EXPECT_TRUE(first.target.equal(second.target));
  }
  EXPECT_FALSE(a.make(0).input.equal(a.make(6).input));
}

// Batches of 5 and of an odd total: some are mixed with images of another process.
TEST(ImageBatches, OfAllProcessesAreThoseOfOne) {
  for (const bool training : {true, false}) {
    auto whole = lively(15);
    whole.training = training;
    const auto one = numbered_images(whole, 49);
    for (std::int64_t number = 0; number < 2 * one.per_epoch(); ++number) {
      std::vector<at::Tensor> inputs, targets;
      for (int rank = 0; rank < 3; ++rank) {
        auto part = whole;
        part.batch = 5;
        part.shard = {rank, 3};
        const auto own = numbered_images(part, 49);
        ASSERT_EQ(own.per_epoch(), one.per_epoch());
        const Batch batch = own.make(number);
        inputs.push_back(batch.input), targets.push_back(batch.target);
      }
      const Batch all = one.make(number);
      EXPECT_TRUE(at::cat(inputs).equal(all.input)) << number;
      EXPECT_TRUE(at::cat(targets).equal(all.target)) << number;
    }
  }
}

TEST(ImageBatches, OfEvaluationTakeAllInOrderAndLastEmptyOnes) {
  auto options = plain_options(4, false);
  options.shard = {0, 2};
  const auto first = numbered_images(options, 18);
  options.shard = {1, 2};
  const auto second = numbered_images(options, 18);
  ASSERT_EQ(first.per_epoch(), 3);
  EXPECT_EQ(numbers_of(first.make(1)), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(numbers_of(second.make(1)), (std::vector<int>{12, 13, 14, 15}));
  EXPECT_EQ(numbers_of(first.make(2)), (std::vector<int>{16, 17}));
  EXPECT_EQ(second.make(2).input.sizes(), (at::IntArrayRef{0, 3, 8, 8}));
  EXPECT_EQ(second.make(2).target.sizes(), (at::IntArrayRef{0}));
  EXPECT_EQ(numbers_of(first.make(3)), (std::vector<int>{0, 1, 2, 3}));
}

TEST(ImageBatches, WithMixingHaveProbabilities) {
  const Batch batch = numbered_images(lively(8), 40).make(0);
  ASSERT_EQ(batch.target.sizes(), (at::IntArrayRef{8, 3}));
  ASSERT_EQ(batch.target.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.target.sum(1).sub(1).abs().max().item<float>() < 1e-6f);
  EXPECT_GE(batch.target.min().item<float>(), 0.1f / 3 - 1e-6f);
  auto smooth = plain_options(8, true);
  smooth.mixing.label_smoothing = 0.3;
  const Batch smoothed = numbered_images(smooth, 40).make(0),
              hard = numbered_images(plain_options(8, true), 40).make(0);
  EXPECT_TRUE(smoothed.input.equal(hard.input));
  EXPECT_TRUE(smoothed.target.argmax(1).equal(hard.target));
  EXPECT_NEAR(smoothed.target.max().item<float>(), 0.8f, 1e-6);
}

// Mixed images are what the unmixed ones and the targets say.
TEST(ImageBatches, BlendInputsAsTheirTargets) {
  auto options = plain_options(4, true);
  const auto unmixed = numbered_images(options, 40);
  options.mixing = {.mixup = 1.0};
  const auto mixed = numbered_images(options, 40);
  int checked = 0;
  for (int number = 0; number < 10; ++number) {
    const Batch before = unmixed.make(number), after = mixed.make(number);
    for (int i = 0; i < 4; ++i) {
      const auto own = before.target[i].item<std::int64_t>();
      if (own == before.target[i ^ 1].item<std::int64_t>()) continue;
      const float keep = after.target[i][own].item<float>();
      const at::Tensor expected = before.input[i].mul(keep).add(before.input[i ^ 1].mul(1 - keep));
      EXPECT_LT(after.input[i].sub(expected).abs().max().item<float>(), 1e-3f);
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
}

TEST(ImageBatches, OfTrainingReplaceImagesThatCannotBeRead) {
  const auto made = numbered_images(plain_options(4, true), 20, {3, 11});
  const auto whole = numbered_images(plain_options(4, true), 20);
  EXPECT_TRUE(made.skipped().empty());
  for (int number = 0; number < 5; ++number) {
    const Batch batch = made.make(number), other = whole.make(number);
    const auto numbers = numbers_of(batch), expected = numbers_of(other);
    EXPECT_TRUE(
        batch.input.equal(numbered_images(plain_options(4, true), 20, {3, 11}).make(number).input));
    for (std::size_t i = 0; i < 4; ++i) {
      if (expected[i] == 3 || expected[i] == 11) {
        EXPECT_TRUE(numbers[i] != 3 && numbers[i] != 11);
      } else {
        EXPECT_EQ(numbers[i], expected[i]);
      }
      EXPECT_EQ(batch.target[static_cast<std::int64_t>(i)].item<std::int64_t>(), numbers[i] % 3);
    }
  }
  made.make(5), made.make(6);
  const auto skipped = made.skipped();
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_EQ(skipped[0].index, 3);
  EXPECT_EQ(skipped[1].why, "image 11 is broken");
}

TEST(ImageBatches, OfEvaluationLeaveImagesOutThatCannotBeRead) {
  const auto made = numbered_images(plain_options(4, false), 6, {1, 4, 5});
  const Batch first = made.make(0);
  EXPECT_EQ(numbers_of(first), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(first.target[1].item<std::int64_t>(), 2);
  EXPECT_EQ(made.make(1).input.size(0), 0);
  EXPECT_EQ(made.skipped().size(), 3u);
}

TEST(ImageBatches, FailWhenStrictOrWhenAlmostNothingCanBeRead) {
  auto strict = plain_options(4, false);
  strict.strict = true;
  const auto made = numbered_images(strict, 6, {1});
  EXPECT_EQ(message_of<std::runtime_error>([&] { made.make(0); }), "image 1 is broken");
  std::set<std::int64_t> all;
  for (int i = 0; i < 40; ++i) all.insert(i);
  expect_part(message_of<std::runtime_error>(
                  [&] { numbered_images(plain_options(4, true), 40, all).make(0); }),
              "could not be read; one of them: image ");
}

// Decoded at a quarter of their size or so, as the parts that are shown allow.
TEST(ImageBatches, OfFilesShowWhatIsInThem) {
  const io::testing::TemporaryFolder folder;
  const Image photo = testing::slope(320, 480, 3);
  for (const char* name : {"train/a", "train/b", "val/a"}) {
    std::filesystem::create_directories(folder / name);
    io::testing::put(folder / (name + std::string("/1.jpg")), testing::jpeg_bytes(photo));
  }
  io::testing::put(folder / "val/a/0.jpg", testing::jpeg_bytes(photo).substr(0, 2000));
  const ImageHalves halves = open_image_folder(folder.path());
  auto options = plain_options(2, false);
  options.input = {32, 32};
  options.augment.centre_share = 0.8;
  const ImageBatches evaluation(halves.test, options);
  const Batch batch = evaluation.make(0);
  ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{1, 3, 32, 32}));
  ASSERT_EQ(evaluation.skipped().size(), 1u);
  expect_part(evaluation.skipped()[0].why, "val/a/0.jpg': the JPEG image is damaged");
  // Of 320 x 480 the middle 256 x 256: red is 250 y / 320, green 250 x / 480, blue its inverse.
  for (int p = 0; p < 32; ++p) {
    const double place = 8 * p + 3.5;
    EXPECT_NEAR(batch.input[0][0][p][9].item<float>(), 250 * (32 + place) / 320, 3);
    EXPECT_NEAR(batch.input[0][1][9][p].item<float>(), 250 * (112 + place) / 480, 3);
    EXPECT_NEAR(batch.input[0][2][9][p].item<float>(), 250 - 250 * (112 + place) / 480, 3);
  }
  options.training = true;
  options.augment.crop = Crop::resized;
  const Batch trained = ImageBatches(halves.train, options).make(0);
  EXPECT_GE(trained.input.min().item<float>(), 0.0f);
  EXPECT_LE(trained.input.max().item<float>(), 255.01f);
  EXPECT_FALSE(trained.input[0].equal(trained.input[1]));
}

TEST(ImageBatches, RefuseWhatCannotBe) {
  const auto error = [](const ImageBatchesOptions& options, int images = 20) {
    return message_of<std::invalid_argument>([&] { numbered_images(options, images); });
  };
  expect_part(error(plain_options(0, true)), "the batch size is 0; expected at least 1");
  expect_part(error(plain_options(21, true)), "there are 20 training images, but a batch takes 21");
  auto options = plain_options(4, true);
  options.shard = {2, 2};
  expect_part(error(options), "this is process 2 of 2");
  options = plain_options(4, true);
  options.channels = 4;
  expect_part(error(options), "4 channels; expected 1 or 3");
  options = plain_options(4, true);
  options.input = {0, 8};
  expect_part(error(options), "8 x 0 pixels");
  options = plain_options(4, true);
  options.augment.flip = -1;
  expect_part(error(options), "flip");
  expect_part(error(plain_options(4, false), 0), "no images for validation");
  expect_part(message_of<std::invalid_argument>(
                  [] { numbered_images(plain_options(4, true), 20).make(-1); }),
              "batch -1 was asked for");
  const ImageBatches wrong(std::make_shared<Numbered>(20, std::set<std::int64_t>{}, 2), lively(4));
  expect_part(message_of<std::invalid_argument>([&] {
                for (int n = 0; n < 5; ++n) wrong.make(n);
              }),
              "; expected 0 to 2");
}

}  // namespace
}  // namespace pareprop::data
