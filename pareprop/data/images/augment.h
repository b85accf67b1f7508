#pragma once

#include <vector>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/images/image.h"
#include "pareprop/data/images/resize.h"

namespace pareprop::data {

// Which part of an image a training sample shows.
enum class Crop {
  centre,   // the largest part of the input's shape, from the middle
  padded,   // that, moved by up to `pad` pixels, black where nothing comes from
  resized,  // a part of random area and shape, from a random place
};

// How images become inputs of a model.
struct ImageAugment {
  Crop crop = Crop::centre;
  int pad = 4;                                      // Crop::padded: pixels of the input
  double min_area = 0.08, max_area = 1.0;           // Crop::resized: share of the image's area
  double min_shape = 3.0 / 4, max_shape = 4.0 / 3;  // Crop::resized: width / height
  double flip = 0.0;                                // probability of left and right exchanged
  double erase = 0.0;                               // probability of a rectangle of noise
  double erase_min_area = 0.02, erase_max_area = 1.0 / 3;  // its share of the input
  double erase_min_shape = 0.3;                            // its height / width, up to the inverse
  // Evaluation: side of the part from the middle, as a share of the largest that fits.
  double centre_share = 1.0;
  Filter filter = Filter::bicubic;
  // Of the levels 0 .. 1, for each colour or one for all: (level - mean) / deviation is the input.
  std::vector<float> mean = {0.5f}, deviation = {0.5f};
};

// Throws std::invalid_argument when an option is out of its range, or there are not as many means
// and deviations as an image with 1 or 3 channels needs.
void check_augment(const ImageAugment& augment);

// What of an image is shown, and how.
struct View {
  Box box;                  // of the full image, resized to the size of the input
  int down = 0, right = 0;  // then moved by so many pixels
  bool flip = false;        // then mirrored
};

// For training; the same draws give the same view.
View random_view(const ImageAugment& augment, ImageSize full, ImageSize input,
                 CounterRandom& random);
// For evaluation.
View centre_view(const ImageAugment& augment, ImageSize full, ImageSize input);

// The smallest size of the whole image in which the view has as many pixels as the input.
ImageSize smallest_size(const View& view, ImageSize full, ImageSize input);

// Writes the view as `channels` planes, one after the other, normalised. `image` may be smaller
// than the full one the view was chosen for. Grey becomes three equal colours, colours become grey
// by their brightness.
void render(const ImageAugment& augment, const View& view, ImageSize full, const Image& image,
            int channels, ImageSize input, float* out);

// With the probability `erase`, puts normally distributed noise into a rectangle of what render()
// wrote.
void erase_randomly(const ImageAugment& augment, int channels, ImageSize input,
                    CounterRandom& random, float* out);

}  // namespace pareprop::data
