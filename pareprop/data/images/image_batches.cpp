#include "pareprop/data/images/image_batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pareprop/data/shuffle.h"

namespace pareprop::data {
namespace {

// What a key is for, so that no two uses share their draws.
enum Purpose : std::uint64_t { order, views, replacements, mixes };

constexpr int kReplacements = 32;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("image batches: " + what);
}

std::uint64_t number_of(std::int64_t value) { return static_cast<std::uint64_t>(value); }

// With whom the sample at a place of the batch of all processes is mixed. Neighbours are strangers
// in a shuffled order, and mostly of the same process, which then has both.
std::int64_t partner(std::int64_t place, std::int64_t all) {
  const std::int64_t neighbour = place ^ 1;
  return neighbour < all ? neighbour : 0;
}

}  // namespace

ImageBatches::ImageBatches(std::shared_ptr<const ImageSource> source, ImageBatchesOptions options)
    : source_(std::move(source)), options_(std::move(options)) {
  require(source_ != nullptr, "there is no source of images");
  require(options_.batch >= 1,
          "the batch size is " + std::to_string(options_.batch) + "; expected at least 1");
  require(options_.input.height >= 1 && options_.input.width >= 1,
          "the model takes " + std::to_string(options_.input.width) + " x " +
              std::to_string(options_.input.height) + " pixels; expected at least 1 x 1");
  require(options_.channels == 1 || options_.channels == 3,
          "the model takes " + std::to_string(options_.channels) + " channels; expected 1 or 3");
  const Shard shard = options_.shard;
  require(shard.world >= 1 && shard.rank >= 0 && shard.rank < shard.world,
          "this is process " + std::to_string(shard.rank) + " of " + std::to_string(shard.world) +
              "; expected a number from 0 to the number of processes minus 1");
  check_augment(options_.augment);
  check_mixing(options_.mixing);

  all_ranks_ = options_.batch * shard.world;
  sample_ = std::int64_t{options_.channels} * options_.input.height * options_.input.width;
  classes_ = static_cast<std::int64_t>(source_->class_names().size());
  const std::int64_t images = source_->size();
  if (options_.training) {
    require(images >= all_ranks_,
            "there are " + std::to_string(images) + " training images, but a batch takes " +
                std::to_string(all_ranks_) + " (" + std::to_string(options_.batch) +
                " in each of " + std::to_string(shard.world) +
                " processes); make the batch smaller");
    per_epoch_ = images / all_ranks_;
  } else {
    require(images >= 1, "there are no images for validation");
    per_epoch_ = (images + all_ranks_ - 1) / all_ranks_;
  }
}

Batch ImageBatches::make(std::int64_t number) const {
  require(number >= 0, "batch " + std::to_string(number) + " was asked for; expected 0 or more");
  return options_.training ? make_training(number) : make_evaluation(number);
}

std::vector<SkippedImage> ImageBatches::skipped() const {
  const std::lock_guard lock(mutex_);
  std::vector<SkippedImage> all;
  for (const auto& [index, why] : skipped_) all.push_back({index, why});
  return all;
}

std::int64_t ImageBatches::label(std::int64_t i) const {
  const std::int64_t label = source_->label(i);
  require(label >= 0 && label < classes_, source_->name(i) + " has the label " +
                                              std::to_string(label) + "; expected 0 to " +
                                              std::to_string(classes_ - 1));
  return label;
}

// Augmented by `random`, or as for evaluation without it. False: the image was skipped.
bool ImageBatches::read_sample(std::int64_t i, CounterRandom* random, float* out) const {
  const ImageAugment& augment = options_.augment;
  const ImageSize input = options_.input;
  ImageSize full;
  View view;
  const auto choose = [&](ImageSize size) {
    full = size;
    view = random != nullptr ? random_view(augment, full, input, *random)
                             : centre_view(augment, full, input);
    return smallest_size(view, full, input);
  };
  Image image;
  try {
    image = source_->load(i, choose);
  } catch (const std::runtime_error& error) {
    if (options_.strict) throw;
    const std::lock_guard lock(mutex_);
    skipped_.emplace(i, error.what());
    return false;
  }
  if (full == ImageSize{}) choose(image.size());
  render(augment, view, full, image, options_.channels, input, out);
  if (random != nullptr) erase_randomly(augment, options_.channels, input, *random, out);
  return true;
}

std::int64_t ImageBatches::training_sample(std::uint64_t epoch, std::int64_t place,
                                           float* out) const {
  const std::uint64_t images = number_of(source_->size());
  const Shuffle shuffled(images, CounterRandom{options_.seed, order, epoch}.next());
  auto i = static_cast<std::int64_t>(shuffled[number_of(place)]);
  CounterRandom others{options_.seed, replacements, epoch, number_of(place)};
  for (int attempt = 0; attempt <= kReplacements; ++attempt) {
    CounterRandom random{options_.seed, views, epoch, number_of(place)};
    if (read_sample(i, &random, out)) return label(i);
    i = static_cast<std::int64_t>(others.below(images));
  }
  throw std::runtime_error(
      std::to_string(kReplacements + 1) +
      " images in a row could not be read; one of them: " + skipped().front().why);
}

Batch ImageBatches::make_training(std::int64_t number) const {
  const std::uint64_t epoch = number_of(number / per_epoch_);
  const std::int64_t batch = options_.batch;
  const std::int64_t all = number % per_epoch_ * all_ranks_;
  const std::int64_t own = options_.shard.rank * batch;

  at::Tensor input = at::empty(
      {batch, options_.channels, options_.input.height, options_.input.width}, at::kFloat);
  float* const images = input.mutable_data_ptr<float>();
  at::Tensor target = at::empty({batch}, at::kLong);
  std::int64_t* const labels = target.mutable_data_ptr<std::int64_t>();
  for (std::int64_t s = 0; s < batch; ++s) {
    labels[s] = training_sample(epoch, all + own + s, images + s * sample_);
  }
  const ImageMixing& mixing = options_.mixing;
  if (!mixing.soft_targets()) return {input, target};

  const std::vector<float> unmixed(images, mixing.mixes() ? images + batch * sample_ : images);
  std::vector<float> foreign;
  at::Tensor soft = at::zeros({batch, classes_}, at::kFloat);
  for (std::int64_t s = 0; s < batch; ++s) {
    CounterRandom random{options_.seed, mixes, epoch, number_of(all + own + s)};
    const Mix mix = draw_mix(mixing, options_.input, random);
    float* const probabilities = soft.mutable_data_ptr<float>() + s * classes_;
    add_target(mixing, mix.keep, labels[s], classes_, probabilities);
    if (mix.keep == 1.0) continue;

    const std::int64_t other = partner(own + s, all_ranks_);
    const float* other_image = unmixed.data() + (other - own) * sample_;
    std::int64_t other_label = 0;
    if (other >= own && other < own + batch) {
      other_label = labels[other - own];
    } else {
      foreign.resize(static_cast<std::size_t>(sample_));
      other_label = training_sample(epoch, all + other, foreign.data());
      other_image = foreign.data();
    }
    apply_mix(mix, other_image, options_.channels, options_.input, images + s * sample_);
    add_target(mixing, 1.0 - mix.keep, other_label, classes_, probabilities);
  }
  return {input, soft};
}

Batch ImageBatches::make_evaluation(std::int64_t number) const {
  const std::int64_t first =
      number % per_epoch_ * all_ranks_ + options_.shard.rank * options_.batch;
  const std::int64_t end = std::min(first + options_.batch, source_->size());
  const std::int64_t most = std::max<std::int64_t>(0, end - first);
  at::Tensor input =
      at::empty({most, options_.channels, options_.input.height, options_.input.width}, at::kFloat);
  at::Tensor target = at::empty({most}, at::kLong);
  std::int64_t read = 0;
  for (std::int64_t i = first; i < end; ++i) {
    if (!read_sample(i, nullptr, input.mutable_data_ptr<float>() + read * sample_)) continue;
    target.mutable_data_ptr<std::int64_t>()[read++] = label(i);
  }
  return {input.narrow(0, 0, read), target.narrow(0, 0, read)};
}

}  // namespace pareprop::data
