#pragma once

#include <string>

#include "pareprop/data/images/augment.h"
#include "pareprop/data/images/image_source.h"
#include "pareprop/data/images/synthetic_images.h"

namespace pareprop::data {

struct OpenImagesOptions {
  double held_out = 0.1;            // folders without train and val: share kept for testing
  SyntheticOptions synthetic = {};  // "synthetic": what is made
};

struct ImageData : ImageHalves {
  ImageSize size;        // of every image; 0 x 0 when they differ
  int channels = 3;      // of the images: 1 or 3
  ImageAugment augment;  // what suits such images
};

// A data set by its name:
//   digits              the built-in 8 x 8 digits
//   fashion-mnist       from Debian's package dataset-fashion-mnist, or fashion-mnist:FOLDER
//   idx:FOLDER          any of the MNIST family
//   cifar10:FOLDER, cifar100:FOLDER   the binary versions
//   folder:FOLDER       JPEG and PNG files in a sub-folder for each class; also just FOLDER
//   synthetic           noise, for measuring
// Throws std::invalid_argument when there is no such data set, when it is not what its name says,
// and when there is only one class to train with; std::runtime_error when a file is damaged.
ImageData open_images(const std::string& spec, const OpenImagesOptions& options = {});

}  // namespace pareprop::data
