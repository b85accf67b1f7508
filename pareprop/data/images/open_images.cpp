#include "pareprop/data/images/open_images.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "pareprop/data/images/cifar_images.h"
#include "pareprop/data/images/digits.h"
#include "pareprop/data/images/idx_images.h"
#include "pareprop/data/images/image_folder.h"

namespace pareprop::data {
namespace {

constexpr const char* kDebianFashion = "/usr/share/datasets/fashion-mnist";

constexpr const char* kNames =
    "digits, fashion-mnist, fashion-mnist:FOLDER, idx:FOLDER, cifar10:FOLDER, cifar100:FOLDER, "
    "folder:FOLDER (or FOLDER alone), synthetic";

// Mean and deviation of the levels of each channel. Sums of integers: exact in any order.
void measure_levels(const ImageSource& images, ImageAugment& augment) {
  const auto channels = static_cast<std::size_t>(images.load(0).channels);
  std::array<std::uint64_t, 3> sum{}, squares{};
  std::uint64_t pixels = 0;
  for (std::int64_t i = 0; i < images.size(); ++i) {
    const Image image = images.load(i);
    pixels += image.pixels.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t p = c; p < image.pixels.size(); p += channels) {
        const std::uint64_t level = image.pixels[p];
        sum[c] += level;
        squares[c] += level * level;
      }
    }
  }
  augment.mean.clear();
  augment.deviation.clear();
  for (std::size_t c = 0; c < channels; ++c) {
    const double count = static_cast<double>(pixels) * 255;
    const double mean = static_cast<double>(sum[c]) / count;
    const double variance = static_cast<double>(squares[c]) / (count * 255) - mean * mean;
    augment.mean.push_back(static_cast<float>(mean));
    // Images that are all alike are not blown up.
    augment.deviation.push_back(variance > 1e-6 ? static_cast<float>(std::sqrt(variance)) : 1.0f);
  }
}

// Images of one size, small enough that the network sees them whole.
ImageData small_images(ImageHalves halves, int pad, double flip) {
  const Image first = halves.train->load(0);
  ImageData data{{std::move(halves)}, first.size(), first.channels, {}};
  data.augment.crop = Crop::padded;
  data.augment.pad = pad;
  data.augment.flip = flip;
  measure_levels(*data.train, data.augment);
  return data;
}

ImageData photos(ImageHalves halves) {
  ImageData data{{std::move(halves)}, {}, 3, {}};
  data.augment.crop = Crop::resized;
  data.augment.flip = 0.5;
  data.augment.centre_share = 0.875;
  // What networks for photos are used to: those of ImageNet.
  data.augment.mean = {0.485f, 0.456f, 0.406f};
  data.augment.deviation = {0.229f, 0.224f, 0.225f};
  return data;
}

ImageData synthetic(const SyntheticOptions& options) {
  ImageData data = photos(synthetic_images(options));
  data.size = {options.height, options.width};
  data.channels = options.channels;
  return data;
}

std::vector<std::string> fashion_classes() {
  return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
}

std::string checked_folder(const std::string& spec, const std::string& folder) {
  if (std::filesystem::is_directory(folder)) return folder;
  if (folder == kDebianFashion) {
    throw std::invalid_argument(
        "'fashion-mnist' was not found in " + folder +
        ": install the package dataset-fashion-mnist, or give its folder: fashion-mnist:FOLDER");
  }
  throw std::invalid_argument("data set '" + spec + "': '" + folder + "' is not a folder" +
                              (folder.empty() ? "; expected NAME:FOLDER" : ""));
}

ImageData open_by_name(const std::string& spec, const OpenImagesOptions& options) {
  const std::size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  const bool alone = colon == std::string::npos;
  if (alone && name == "digits") return small_images(digit_images(), 1, 0.0);
  if (alone && name == "synthetic") return synthetic(options.synthetic);

  const auto folder = [&] { return checked_folder(spec, alone ? "" : spec.substr(colon + 1)); };
  if (name == "fashion-mnist") {
    const auto files = alone ? checked_folder(spec, kDebianFashion) : folder();
    return small_images(open_idx_images(files, fashion_classes()), 2, 0.5);
  }
  if (name == "idx") return small_images(open_idx_images(folder()), 2, 0.0);
  if (name == "cifar10") return small_images(open_cifar(Cifar::ten, folder()), 4, 0.5);
  if (name == "cifar100") return small_images(open_cifar(Cifar::hundred, folder()), 4, 0.5);
  if (name == "folder") return photos(open_image_folder(folder(), options.held_out));
  if (std::filesystem::is_directory(spec)) return photos(open_image_folder(spec, options.held_out));
  throw std::invalid_argument("there is no data set '" + spec + "'; expected one of: " + kNames);
}

}  // namespace

ImageData open_images(const std::string& spec, const OpenImagesOptions& options) {
  ImageData data = open_by_name(spec, options);
  const ImageSource& train = *data.train;
  const std::int64_t label = train.label(0);
  for (std::int64_t i = 1; i < train.size(); ++i) {
    if (train.label(i) != label) return data;
  }
  throw std::invalid_argument("data set '" + spec + "': all training images have the class '" +
                              train.class_names()[static_cast<std::size_t>(label)] +
                              "'; expected at least two classes");
}

}  // namespace pareprop::data
