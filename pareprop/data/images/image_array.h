#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// Labelled images of one size, one after the other, each laid out as Image.
struct ImageArray {
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<int> labels;
};

// Images in memory.
class ArrayImages final : public ImageSource {
 public:
  // `what` begins messages. Throws std::invalid_argument when there is no image, when pixels and
  // labels are not of the same number of images, and for a label that has no class name.
  ArrayImages(std::string what, ImageArray images, std::vector<std::string> class_names);

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.labels.size()); }
  std::int64_t label(std::int64_t i) const override;
  Image load(std::int64_t i, const SmallestSize& smallest = {}) const override;
  std::string name(std::int64_t i) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }

 private:
  std::string what_;
  ImageArray images_;
  std::vector<std::string> class_names_;
};

// "0", "1", ...: for classes without names.
std::vector<std::string> numbered_classes(int count);

}  // namespace pareprop::data
