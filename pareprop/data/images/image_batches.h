#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pareprop/data/batches.h"
#include "pareprop/data/images/augment.h"
#include "pareprop/data/images/image_source.h"
#include "pareprop/data/images/mixing.h"

namespace pareprop::data {

struct ImageBatchesOptions {
  std::int64_t batch = 64;       // samples of one batch of this process
  ImageSize input = {224, 224};  // height and width the model takes
  int channels = 3;              // colours the model takes: 1 or 3
  bool training = true;          // shuffled, augmented and mixed; otherwise in order, as they are
  std::uint64_t seed = 0;        // of the order and of everything drawn
  Shard shard = {};              // this process among those that train together
  ImageAugment augment = {};     // how images become inputs
  ImageMixing mixing = {};       // training: how images are mixed with each other
  bool strict = false;           // an image that cannot be read is an error
};

struct SkippedImage {
  std::int64_t index;  // in the source
  std::string why;     // names the file
};

// Batches of images. Training leaves out an epoch's incomplete last batch (of all processes);
// evaluation takes every image once, so that the last batch is smaller, of some processes empty.
//
// An image that cannot be read is skipped, unless `strict`: training takes another one in its
// place, evaluation leaves it out of its batch. Both depend on nothing but the files.
class ImageBatches final : public Batches {
 public:
  // Throws std::invalid_argument for options out of range, and when there are fewer images to train
  // with than all processes together take for one batch.
  ImageBatches(std::shared_ptr<const ImageSource> source, ImageBatchesOptions options);

  std::int64_t per_epoch() const override { return per_epoch_; }
  // Throws std::runtime_error when an image cannot be read and `strict`, and when one after the
  // other cannot.
  Batch make(std::int64_t number) const override;

  std::int64_t classes() const { return classes_; }
  // Images that could not be read so far, by their number in the source.
  std::vector<SkippedImage> skipped() const;

 private:
  Batch make_training(std::int64_t number) const;
  Batch make_evaluation(std::int64_t number) const;
  // Write one input, and return its label.
  std::int64_t training_sample(std::uint64_t epoch, std::int64_t place, float* out) const;
  bool read_sample(std::int64_t i, CounterRandom* random, float* out) const;
  std::int64_t label(std::int64_t i) const;

  std::shared_ptr<const ImageSource> source_;
  ImageBatchesOptions options_;
  std::int64_t per_epoch_ = 0, all_ranks_ = 0, sample_ = 0, classes_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::string> skipped_;
};

}  // namespace pareprop::data
