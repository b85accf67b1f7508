#include "pareprop/data/images/cifar.h"

#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

constexpr int kSide = 32;
constexpr int kColours = 3;
constexpr std::size_t kPlane = kSide * kSide;
constexpr std::size_t kPixelBytes = kColours * kPlane;

int checked_label(std::byte byte, int classes, std::size_t record) {
  const int label = std::to_integer<int>(byte);
  if (label >= classes) {
    throw std::runtime_error("the label of record " + std::to_string(record) + " is " +
                             std::to_string(label) + "; expected 0 to " +
                             std::to_string(classes - 1));
  }
  return label;
}

}  // namespace

void append_cifar(Cifar kind, std::span<const std::byte> bytes, ImageArray& images) {
  const std::size_t label_bytes = kind == Cifar::ten ? 1 : 2;
  const std::size_t record_bytes = label_bytes + kPixelBytes;
  if (bytes.empty() || bytes.size() % record_bytes != 0) {
    throw std::runtime_error("it has " + std::to_string(bytes.size()) +
                             " bytes; expected a multiple of the " + std::to_string(record_bytes) +
                             " of one record");
  }
  images.height = images.width = kSide;
  images.channels = kColours;
  const std::size_t records = bytes.size() / record_bytes;
  images.pixels.reserve(images.pixels.size() + records * kPixelBytes);
  for (std::size_t r = 0; r < records; ++r) {
    const auto record = bytes.subspan(r * record_bytes, record_bytes);
    if (kind == Cifar::hundred) checked_label(record[0], 20, r);
    images.labels.push_back(
        checked_label(record[label_bytes - 1], kind == Cifar::ten ? 10 : 100, r));
    const auto planes = record.subspan(label_bytes);
    for (std::size_t p = 0; p < kPlane; ++p) {
      for (std::size_t c = 0; c < kColours; ++c) {
        images.pixels.push_back(std::to_integer<std::uint8_t>(planes[c * kPlane + p]));
      }
    }
  }
}

}  // namespace pareprop::data
