#include "pareprop/data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// Keys' cubic with a = -1/2.
double cubic(double x) {
  x = std::abs(x);
  if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
  return x < 2.0 ? ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0 : 0.0;
}

// What one pixel of the output takes along an axis: `count` pixels of the input from `first` on.
struct Taps {
  int first, count;
  std::size_t weights;  // where theirs begin
};

struct Axis {
  std::vector<Taps> taps;
  std::vector<float> weights;

  int begin() const { return taps.front().first; }
  int end() const { return taps.back().first + taps.back().count; }
};

Axis make_axis(int input, double begin, double length, int output, Filter filter) {
  const double scale = length / output;
  const double width = std::max(scale, 1.0);
  const double support = (filter == Filter::bilinear ? 1.0 : 2.0) * width;
  Axis axis;
  std::vector<double> weights;
  for (int i = 0; i < output; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - support + 0.5)));
    const int end = std::min(input, static_cast<int>(std::floor(centre + support + 0.5)));
    weights.clear();
    double sum = 0.0;
    for (int p = first; p < end; ++p) {
      const double x = (p + 0.5 - centre) / width;
      weights.push_back(filter == Filter::bilinear ? triangle(x) : cubic(x));
      sum += weights.back();
    }
    axis.taps.push_back({first, end - first, axis.weights.size()});
    for (const double weight : weights) axis.weights.push_back(static_cast<float>(weight / sum));
  }
  return axis;
}

// One row: output pixel i is the weighted sum of its taps.
template <int channels, class Level>
void resize_row(const Level* in, const Axis& axis, float* out) {
  for (const Taps& taps : axis.taps) {
    float sum[channels] = {};
    const float* weight = axis.weights.data() + taps.weights;
    const Level* level = in + static_cast<std::ptrdiff_t>(taps.first) * channels;
    for (int t = 0; t < taps.count; ++t) {
      for (int c = 0; c < channels; ++c) sum[c] += weight[t] * static_cast<float>(*level++);
    }
    for (int c = 0; c < channels; ++c) *out++ = sum[c];
  }
}

template <class Level>
void resize_row(const Level* in, int channels, const Axis& axis, float* out) {
  if (channels == 1) return resize_row<1>(in, axis, out);
  if (channels == 3) return resize_row<3>(in, axis, out);
  throw std::invalid_argument("an image to resize has " + std::to_string(channels) +
                              " channels; expected 1 or 3");
}

void check(ImageSize full, const Box& box, ImageSize size) {
  // Boxes are computed: room for rounding errors, which the clamps of make_axis make harmless.
  constexpr double kSlack = 1e-6;
  const bool inside = box.top >= -kSlack && box.left >= -kSlack && box.height > 0.0 &&
                      box.width > 0.0 && box.top + box.height <= full.height + kSlack &&
                      box.left + box.width <= full.width + kSlack;
  if (inside && size.height >= 1 && size.width >= 1) return;
  throw std::invalid_argument(
      "cannot resize " + std::to_string(box.width) + " x " + std::to_string(box.height) +
      " pixels at (" + std::to_string(box.left) + ", " + std::to_string(box.top) +
      ") of an image of " + std::to_string(full.width) + " x " + std::to_string(full.height) +
      " to " + std::to_string(size.width) + " x " + std::to_string(size.height) +
      "; expected a part of the image, and at least one pixel of each");
}

template <class AnyImage>
FloatImage resize_any(const AnyImage& image, const Box& box, ImageSize size, Filter filter) {
  check({image.height, image.width}, box, size);
  FloatImage out{size.height, size.width, image.channels, {}};
  const bool whole =
      box.top == 0.0 && box.left == 0.0 && box.height == image.height && box.width == image.width;
  if (whole && size == ImageSize{image.height, image.width}) {
    out.pixels.assign(image.pixels.begin(), image.pixels.end());
    return out;
  }
  const Axis across = make_axis(image.width, box.left, box.width, size.width, filter);
  const Axis down = make_axis(image.height, box.top, box.height, size.height, filter);

  const auto in_row = static_cast<std::size_t>(image.width) * image.channels;
  const auto out_row = static_cast<std::size_t>(size.width) * image.channels;
  const int first = down.begin();
  std::vector<float> rows(static_cast<std::size_t>(down.end() - first) * out_row);
  for (int y = first; y < down.end(); ++y) {
    resize_row(image.pixels.data() + static_cast<std::size_t>(y) * in_row, image.channels, across,
               rows.data() + static_cast<std::size_t>(y - first) * out_row);
  }
  out.pixels.assign(static_cast<std::size_t>(size.height) * out_row, 0.0f);
  float* sum = out.pixels.data();
  for (const Taps& taps : down.taps) {
    const float* row = rows.data() + static_cast<std::size_t>(taps.first - first) * out_row;
    for (int t = 0; t < taps.count; ++t, row += out_row) {
      const float weight = down.weights[taps.weights + static_cast<std::size_t>(t)];
      for (std::size_t x = 0; x < out_row; ++x) sum[x] += weight * row[x];
    }
    sum += out_row;
  }
  return out;
}

}  // namespace

FloatImage resize(const Image& image, const Box& box, ImageSize size, Filter filter) {
  return resize_any(image, box, size, filter);
}

FloatImage resize(const FloatImage& image, const Box& box, ImageSize size, Filter filter) {
  return resize_any(image, box, size, filter);
}

}  // namespace pareprop::data
