#pragma once

#include <cstdint>

#include "pareprop/models/model.h"

namespace pareprop::models {

struct ImageShape {
  std::int64_t image_size = 224;  // height and width
  std::int64_t channels = 3;
  std::int64_t classes = 1000;
};

// (batch, channels, size, size) -> (batch, tokens, channels * patch * patch), row by row. A
// convolution whose stride is its kernel is a linear layer on these. REQUIRES: contiguous images
// whose size is a multiple of the patch's.
at::Tensor patches(const at::Tensor& images, std::int64_t patch);

// A network that gives an image the scores of its classes.
class ImageModel : public Model {
 public:
  Batch example(std::int64_t batch, std::uint64_t seed) const override;
  const ImageShape& shape() const { return shape_; }

 protected:
  explicit ImageModel(const ImageShape& shape) : shape_(shape) {}

  // The images, contiguous. Throws std::invalid_argument when their shape is not the network's.
  at::Tensor images(const Batch& batch) const;

 private:
  ImageShape shape_;
};

}  // namespace pareprop::models
