#include "pareprop/data/images/image_array.h"

#include <stdexcept>
#include <utility>

namespace pareprop::data {
namespace {

std::size_t bytes_per_image(const ImageArray& images) {
  return static_cast<std::size_t>(images.height) * static_cast<std::size_t>(images.width) *
         static_cast<std::size_t>(images.channels);
}

}  // namespace

ArrayImages::ArrayImages(std::string what, ImageArray images, std::vector<std::string> class_names)
    : what_(std::move(what)), images_(std::move(images)), class_names_(std::move(class_names)) {
  const std::size_t each = bytes_per_image(images_);
  if (images_.labels.empty() || each == 0) {
    throw std::invalid_argument(what_ + ": there is no image in it; expected at least one");
  }
  if (images_.pixels.size() != each * images_.labels.size()) {
    throw std::invalid_argument(what_ + ": " + std::to_string(images_.labels.size()) +
                                " labels for " + std::to_string(images_.pixels.size() / each) +
                                " images; expected one label for each image");
  }
  const auto classes = static_cast<int>(class_names_.size());
  for (std::size_t i = 0; i < images_.labels.size(); ++i) {
    if (const int label = images_.labels[i]; label < 0 || label >= classes) {
      throw std::invalid_argument(what_ + ": the label of image " + std::to_string(i) + " is " +
                                  std::to_string(label) + "; expected 0 to " +
                                  std::to_string(classes - 1));
    }
  }
}

std::int64_t ArrayImages::label(std::int64_t i) const {
  return images_.labels.at(static_cast<std::size_t>(i));
}

Image ArrayImages::load(std::int64_t i, const SmallestSize&) const {
  const auto each = static_cast<std::ptrdiff_t>(bytes_per_image(images_));
  const auto first = images_.pixels.begin() + i * each;
  return {images_.height, images_.width, images_.channels, {first, first + each}};
}

std::string ArrayImages::name(std::int64_t i) const {
  return what_ + ", image " + std::to_string(i);
}

std::vector<std::string> numbered_classes(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace pareprop::data
