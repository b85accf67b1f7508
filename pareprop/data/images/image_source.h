#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pareprop/data/images/image.h"

namespace pareprop::data {

// Says, given the size of an image in its file, the smallest size that still serves: a decoder may
// save the work of decoding more. Empty: the full size is needed.
using SmallestSize = std::function<ImageSize(ImageSize full)>;

// Labelled images by number. All functions are safe from several threads.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  // 0 .. class_names().size() - 1.
  virtual std::int64_t label(std::int64_t i) const = 0;
  // Throws std::runtime_error, which names the file, when the image cannot be read.
  virtual Image load(std::int64_t i, const SmallestSize& smallest = {}) const = 0;
  // What messages call the image: the path of its file, or its number.
  virtual std::string name(std::int64_t i) const = 0;
  // UTF-8; bytes of names that are not are written as \xNN.
  virtual const std::vector<std::string>& class_names() const = 0;
  // One line each: folders and the like that could not be read, whose images are not there.
  virtual std::vector<std::string> left_out() const { return {}; }
};

struct ImageHalves {
  std::shared_ptr<const ImageSource> train, test;
};

}  // namespace pareprop::data
