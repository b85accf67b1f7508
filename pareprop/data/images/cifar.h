#pragma once

#include <cstddef>
#include <span>

#include "pareprop/data/images/image_array.h"

namespace pareprop::data {

enum class Cifar { ten, hundred };

// Appends the images of one file of the binary version: records of a label (CIFAR-100: a coarse
// label, then the fine one, which is taken) and 32 x 32 pixels, one colour after the other. Throws
// std::runtime_error when the bytes are no whole records, or a label is out of range.
void append_cifar(Cifar kind, std::span<const std::byte> bytes, ImageArray& images);

}  // namespace pareprop::data
