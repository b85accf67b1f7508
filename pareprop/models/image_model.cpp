#include "pareprop/models/image_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <array>
#include <stdexcept>
#include <string>

#include "pareprop/ops/describe.h"

namespace pareprop::models {

at::Tensor patches(const at::Tensor& images, std::int64_t patch) {
  const auto batch = images.size(0), channels = images.size(1), side = images.size(2) / patch;
  return images.view({batch, channels, side, patch, side, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({batch, side * side, channels * patch * patch});
}

Batch ImageModel::example(std::int64_t batch, std::uint64_t seed) const {
  const auto options = weight_options();
  const std::array<std::int64_t, 4> sizes{batch, shape_.channels, shape_.image_size,
                                          shape_.image_size};
  if (options.device().is_meta()) {
    return {.input = at::empty(sizes, options),
            .target = at::empty({batch}, options.dtype(at::kLong))};
  }
  const auto generator = at::detail::createCPUGenerator(seed);
  return {.input = at::randn(sizes, generator, options.device(at::kCPU)).to(options.device()),
          .target = at::randint(shape_.classes, {batch}, generator, at::TensorOptions(at::kLong))
                        .to(options.device())};
}

at::Tensor ImageModel::images(const Batch& batch) const {
  const at::Tensor& x = batch.input;
  if (!x.defined() || x.dim() != 4 || x.size(1) != shape_.channels ||
      x.size(2) != shape_.image_size || x.size(3) != shape_.image_size) {
    const std::string side = std::to_string(shape_.image_size);
    throw std::invalid_argument("expected images [batch, " + std::to_string(shape_.channels) +
                                ", " + side + ", " + side + "], got " + describe(x));
  }
  return x.contiguous();
}

}  // namespace pareprop::models
