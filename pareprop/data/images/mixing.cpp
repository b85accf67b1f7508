#include "pareprop/data/images/mixing.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("image mixing: expected ") + what);
}

// The logarithm of a number of the gamma distribution: small alphas give numbers below the range of
// double. Marsaglia and Tsang's method; below 1 by way of alpha + 1.
double draw_log_gamma(double alpha, CounterRandom& random) {
  if (alpha < 1.0) {
    return draw_log_gamma(alpha + 1.0, random) + std::log(1.0 - random.uniform()) / alpha;
  }
  const double d = alpha - 1.0 / 3, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = random.normal();
    const double root = 1.0 + c * x;
    const double u = 1.0 - random.uniform();
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

}  // namespace

void check_mixing(const ImageMixing& mixing) {
  require(mixing.mixup >= 0 && mixing.cutmix >= 0, "mixup and cutmix to be 0 or more");
  require(mixing.probability >= 0 && mixing.probability <= 1 && mixing.cutmix_share >= 0 &&
              mixing.cutmix_share <= 1,
          "probability and cutmix_share to be in 0 .. 1");
  require(mixing.label_smoothing >= 0 && mixing.label_smoothing < 1,
          "label_smoothing to be at least 0, less than 1");
}

double draw_beta(double alpha, CounterRandom& random) {
  const double a = draw_log_gamma(alpha, random), b = draw_log_gamma(alpha, random);
  return 1.0 / (1.0 + std::exp(b - a));
}

Mix draw_mix(const ImageMixing& mixing, ImageSize size, CounterRandom& random) {
  if (!mixing.mixes() || random.uniform() >= mixing.probability) return {};
  const bool cut =
      mixing.mixup <= 0 || (mixing.cutmix > 0 && random.uniform() < mixing.cutmix_share);
  Mix mix{draw_beta(cut ? mixing.cutmix : mixing.mixup, random)};
  if (!cut) return mix;

  // Of the other's share of the area, around a point anywhere: what lies outside is cut off.
  const double side = std::sqrt(1.0 - mix.keep);
  const auto along = [&](int all, int& begin, int& length) {
    const auto centre = static_cast<int>(random.below(static_cast<std::uint64_t>(all)));
    const auto half = static_cast<int>(all * side / 2);
    begin = std::max(0, centre - half);
    length = std::min(all, centre + half) - begin;
  };
  along(size.height, mix.top, mix.height);
  along(size.width, mix.left, mix.width);
  const double area = static_cast<double>(mix.height) * mix.width;
  // Without a rectangle it would count as blended; it stays as it is.
  if (area == 0.0) return {};
  mix.keep = 1.0 - area / (static_cast<double>(size.height) * size.width);
  return mix;
}

void apply_mix(const Mix& mix, const float* other, int channels, ImageSize size, float* image) {
  if (mix.height > 0) {
    for (int c = 0; c < channels; ++c) {
      for (int y = mix.top; y < mix.top + mix.height; ++y) {
        const std::ptrdiff_t at =
            (static_cast<std::ptrdiff_t>(c) * size.height + y) * size.width + mix.left;
        std::copy_n(other + at, mix.width, image + at);
      }
    }
  } else if (mix.keep < 1.0) {
    const auto keep = static_cast<float>(mix.keep);
    const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(channels) * size.height * size.width;
    for (std::ptrdiff_t i = 0; i < count; ++i) image[i] = keep * image[i] + (1 - keep) * other[i];
  }
}

void add_target(const ImageMixing& mixing, double share, std::int64_t label, std::int64_t classes,
                float* target) {
  const double spread = mixing.label_smoothing / static_cast<double>(classes);
  for (std::int64_t k = 0; k < classes; ++k) target[k] += static_cast<float>(share * spread);
  target[label] += static_cast<float>(share * (1.0 - mixing.label_smoothing));
}

}  // namespace pareprop::data
