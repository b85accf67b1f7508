#include "pareprop/data/images/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

constexpr int kAttempts = 10;
// Brightness of red, green and blue (ITU-R 601).
constexpr std::array kBrightness{0.299f, 0.587f, 0.114f};

struct Rectangle {
  int top, left, height, width;
};

// A rectangle of random area (as a share), shape and place; none when too many did not fit.
std::optional<Rectangle> random_rectangle(ImageSize full, double min_area, double max_area,
                                          double min_shape, double max_shape,
                                          CounterRandom& random) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = random.uniform(min_area, max_area) * full.height * full.width;
    // Twice as wide is as likely as half as wide.
    const double shape = std::exp(random.uniform(std::log(min_shape), std::log(max_shape)));
    const auto width = static_cast<int>(std::lround(std::sqrt(area * shape)));
    const auto height = static_cast<int>(std::lround(std::sqrt(area / shape)));
    if (width < 1 || height < 1 || width > full.width || height > full.height) continue;
    const auto place = [&](int room) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(room) + 1));
    };
    const int top = place(full.height - height);
    return Rectangle{top, place(full.width - width), height, width};
  }
  return std::nullopt;
}

// The largest part of the given shape (width / height) that fits, from the middle, times `share`.
Box centre_box(ImageSize full, double shape, double share) {
  const double height = share * std::min<double>(full.height, full.width / shape);
  const double width = height * shape;
  return {(full.height - height) / 2, (full.width - width) / 2, height, width};
}

double shape_of(ImageSize size) { return static_cast<double>(size.width) / size.height; }

// The mean or deviation of channel c of `channels`.
float value_of(const std::vector<float>& values, int channels, int c) {
  if (values.size() == 1) return values[0];
  if (channels == 3) return values[static_cast<std::size_t>(c)];
  float sum = 0.0f;
  for (std::size_t i = 0; i < kBrightness.size(); ++i) sum += kBrightness[i] * values[i];
  return sum;
}

// The level of channel c of `channels` at a place; 0 outside.
float level_of(const FloatImage& image, int y, int x, int channels, int c) {
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return 0.0f;
  const float* pixel = image.pixels.data() + (static_cast<std::ptrdiff_t>(y) * image.width + x) *
                                                 static_cast<std::ptrdiff_t>(image.channels);
  float level = pixel[image.channels == 1 ? 0 : c];
  if (image.channels == 3 && channels == 1) {
    level = kBrightness[0] * pixel[0] + kBrightness[1] * pixel[1] + kBrightness[2] * pixel[2];
  }
  return std::clamp(level, 0.0f, 255.0f);  // bicubic overshoots at edges
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(std::string("image augmentation: expected ") + what);
}

bool is_share(double value) { return value >= 0.0 && value <= 1.0; }

}  // namespace

void check_augment(const ImageAugment& augment) {
  require(augment.pad >= 0, "pad to be 0 or more");
  require(augment.min_area > 0 && augment.min_area <= augment.max_area && augment.max_area <= 1,
          "0 < min_area <= max_area <= 1");
  require(augment.min_shape > 0 && augment.min_shape <= augment.max_shape,
          "0 < min_shape <= max_shape");
  require(is_share(augment.flip) && is_share(augment.erase), "flip and erase to be in 0 .. 1");
  require(augment.erase_min_area > 0 && augment.erase_min_area <= augment.erase_max_area &&
              augment.erase_max_area <= 1,
          "0 < erase_min_area <= erase_max_area <= 1");
  require(augment.erase_min_shape > 0 && augment.erase_min_shape <= 1,
          "erase_min_shape to be more than 0, at most 1");
  require(augment.centre_share > 0 && augment.centre_share <= 1,
          "centre_share to be more than 0, at most 1");
  for (const auto* values : {&augment.mean, &augment.deviation}) {
    require(values->size() == 1 || values->size() == 3,
            "one or three values in mean and in deviation");
  }
  for (const float deviation : augment.deviation) {
    require(deviation > 0, "deviations to be more than 0");
  }
}

View random_view(const ImageAugment& augment, ImageSize full, ImageSize input,
                 CounterRandom& random) {
  View view{centre_box(full, shape_of(input), 1.0)};
  if (augment.crop == Crop::resized) {
    const auto part = random_rectangle(full, augment.min_area, augment.max_area, augment.min_shape,
                                       augment.max_shape, random);
    if (part) {
      view.box = {static_cast<double>(part->top), static_cast<double>(part->left),
                  static_cast<double>(part->height), static_cast<double>(part->width)};
    }
  } else if (augment.crop == Crop::padded) {
    const auto shift = [&] {
      const auto places = 2 * static_cast<std::uint64_t>(augment.pad) + 1;
      return static_cast<int>(random.below(places)) - augment.pad;
    };
    view.down = shift();
    view.right = shift();
  }
  view.flip = random.uniform() < augment.flip;
  return view;
}

View centre_view(const ImageAugment& augment, ImageSize full, ImageSize input) {
  return {centre_box(full, shape_of(input), augment.centre_share)};
}

ImageSize smallest_size(const View& view, ImageSize full, ImageSize input) {
  const auto along = [](int all, int wanted, double part) {
    return static_cast<int>(std::min<double>(all, std::ceil(all * (wanted / part))));
  };
  return {along(full.height, input.height, view.box.height),
          along(full.width, input.width, view.box.width)};
}

void render(const ImageAugment& augment, const View& view, ImageSize full, const Image& image,
            int channels, ImageSize input, float* out) {
  const double down = static_cast<double>(image.height) / full.height;
  const double across = static_cast<double>(image.width) / full.width;
  const Box box{view.box.top * down, view.box.left * across, view.box.height * down,
                view.box.width * across};
  const FloatImage shown = resize(image, box, input, augment.filter);

  for (int c = 0; c < channels; ++c) {
    const float mean = value_of(augment.mean, channels, c);
    const float deviation = value_of(augment.deviation, channels, c);
    for (int y = 0; y < input.height; ++y) {
      for (int x = 0; x < input.width; ++x) {
        const int from_x = (view.flip ? input.width - 1 - x : x) - view.right;
        const float level = level_of(shown, y - view.down, from_x, channels, c);
        *out++ = (level / 255.0f - mean) / deviation;
      }
    }
  }
}

void erase_randomly(const ImageAugment& augment, int channels, ImageSize input,
                    CounterRandom& random, float* out) {
  if (!(random.uniform() < augment.erase)) return;
  const auto part =
      random_rectangle(input, augment.erase_min_area, augment.erase_max_area,
                       augment.erase_min_shape, 1.0 / augment.erase_min_shape, random);
  if (!part) return;
  for (int c = 0; c < channels; ++c) {
    for (int y = part->top; y < part->top + part->height; ++y) {
      float* row = out + (static_cast<std::ptrdiff_t>(c) * input.height + y) * input.width;
      for (int x = part->left; x < part->left + part->width; ++x) {
        row[x] = static_cast<float>(random.normal());
      }
    }
  }
}

}  // namespace pareprop::data
