#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

struct LabelledImages {
  at::Tensor images;  // float32 (N, channels, height, width), 0..1
  at::Tensor labels;  // int64 (N)
};

// 1797 handwritten digits of 8 x 8 pixels with labels 0..9, in the order of data/digits.csv. They
// are part of the library: no file is read. New tensors at each call.
LabelledImages digits();

// The same as images of 8 x 8 grey pixels; every sixth is for testing.
ImageHalves digit_images();

// One image a line: 64 pixels 0..16 row by row, then the label 0..9, separated by commas. The last
// line may lack its newline. Throws std::invalid_argument with the line number for anything else.
LabelledImages parse_digits(std::string_view csv);

}  // namespace pareprop::data
