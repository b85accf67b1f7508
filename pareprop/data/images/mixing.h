#pragma once

#include <cstdint>

#include "pareprop/data/counter_random.h"
#include "pareprop/data/images/image.h"

namespace pareprop::data {

// How images of a batch and their labels are mixed with each other.
struct ImageMixing {
  double mixup = 0.0;            // alpha of mixup (two images blended); 0: never
  double cutmix = 0.0;           // alpha of CutMix (a rectangle of another image); 0: never
  double probability = 1.0;      // of an image to be mixed at all, when one of both is on
  double cutmix_share = 0.5;     // of mixed images that are by CutMix, when both are on
  double label_smoothing = 0.0;  // share of each label that is spread over all classes

  bool mixes() const { return (mixup > 0 || cutmix > 0) && probability > 0; }
  // Whether targets are probabilities.
  bool soft_targets() const { return mixes() || label_smoothing > 0; }
};

// Throws std::invalid_argument when an option is out of its range.
void check_mixing(const ImageMixing& mixing);

// How one image is mixed with another.
struct Mix {
  double keep = 1.0;  // share of its own
  // The rectangle that comes from the other; empty: both are blended.
  int top = 0, left = 0, height = 0, width = 0;
};

Mix draw_mix(const ImageMixing& mixing, ImageSize size, CounterRandom& random);

// `channels` planes each.
void apply_mix(const Mix& mix, const float* other, int channels, ImageSize size, float* image);

// Adds `share` of the probabilities of a label, smoothed, to those of `classes` classes.
void add_target(const ImageMixing& mixing, double share, std::int64_t label, std::int64_t classes,
                float* target);

// Of the beta distribution with both parameters `alpha` > 0.
double draw_beta(double alpha, CounterRandom& random);

}  // namespace pareprop::data
