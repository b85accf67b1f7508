// libFuzzer: any bytes as a CIFAR file, the first of which says which. They are refused with
// std::runtime_error, or every record is an image with a label of its data set.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>

#include "pareprop/data/images/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pareprop::data::Cifar;
  if (size == 0) return 0;
  const Cifar kind = data[0] % 2 == 0 ? Cifar::ten : Cifar::hundred;
  pareprop::data::ImageArray images;
  try {
    append_cifar(kind, {reinterpret_cast<const std::byte*>(data + 1), size - 1}, images);
  } catch (const std::runtime_error&) {
    return 0;
  }
  const std::size_t record = 32 * 32 * 3 + (kind == Cifar::ten ? 1 : 2);
  if (images.labels.size() * record != size - 1) std::abort();
  if (images.pixels.size() != images.labels.size() * 32 * 32 * 3) std::abort();
  for (const int label : images.labels) {
    if (label < 0 || label >= (kind == Cifar::ten ? 10 : 100)) std::abort();
  }
  return 0;
}
