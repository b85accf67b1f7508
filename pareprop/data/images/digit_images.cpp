#include "pareprop/data/images/digit_images.h"

#include <cmath>
#include <memory>
#include <utility>

#include "pareprop/data/images/digits.h"
#include "pareprop/data/images/image_array.h"

namespace pareprop::data {

ImageHalves digit_images() {
  const LabelledImages digits = pareprop::data::digits();
  ImageArray train{
      static_cast<int>(digits.images.size(2)), static_cast<int>(digits.images.size(3)), 1, {}, {}};
  ImageArray test = train;
  const std::int64_t pixels = digits.images[0].numel();
  const float* pixel = digits.images.const_data_ptr<float>();
  for (std::int64_t i = 0; i < digits.labels.numel(); ++i) {
    ImageArray& half = i % 6 == 5 ? test : train;
    half.labels.push_back(static_cast<int>(digits.labels.const_data_ptr<std::int64_t>()[i]));
    for (std::int64_t p = 0; p < pixels; ++p) {
      half.pixels.push_back(static_cast<std::uint8_t>(std::lround(*pixel++ * 255)));
    }
  }
  const auto names = numbered_classes(10);
  return {std::make_shared<ArrayImages>("digits (train)", std::move(train), names),
          std::make_shared<ArrayImages>("digits (test)", std::move(test), names)};
}

}  // namespace pareprop::data
