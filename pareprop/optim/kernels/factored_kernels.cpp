#include "pareprop/optim/kernels/factored_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <type_traits>

#include "pareprop/data/counter_random.h"

namespace pareprop::optim {
namespace {

constexpr std::int64_t kGrain = 32768;  // values that are worth a thread

template <typename Body>
void over_rows(std::int64_t rows, std::int64_t columns, const Body& body) {
  at::parallel_for(0, rows, std::max<std::int64_t>(1, kGrain / columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) body(row);
                   });
}

// Sums of a few that become vectors; which value goes into which depends on its place only.
template <typename Term>
double sum_of(std::int64_t count, const Term& term) {
  constexpr std::int64_t kSums = 16;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) sums[static_cast<std::size_t>(j)] += term(i + j);
  }
  for (; i < count; ++i) sums[0] += term(i);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Note [Rounding at random]
c10::BFloat16 rounded(float value, std::uint64_t key, std::int64_t element) {
  if (value != value) return c10::BFloat16(value);
  const std::uint64_t number =
      data::mix64(key + static_cast<std::uint64_t>(element / 4 + 1) * Rounding::kStep);
  const auto random = static_cast<std::uint32_t>(number >> (16 * (element % 4)) & 0xffff);
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16),
          c10::BFloat16::from_bits()};
}

}  // namespace

template <typename Weight>
std::vector<double> GradientMatrix<Weight>::row_means(double factor) const {
  std::vector<double> means(static_cast<std::size_t>(rows));
  over_rows(rows, columns, [&](std::int64_t row) {
    const Weight* const own = values + row * columns;
    const double sum = sum_of(columns, [&](std::int64_t i) {
      const auto gradient = static_cast<double>(static_cast<float>(own[i]));
      return gradient * gradient;
    });
    means[static_cast<std::size_t>(row)] = sum * factor * factor / static_cast<double>(columns);
  });
  return means;
}

template <typename Weight>
std::vector<double> GradientMatrix<Weight>::column_means(double factor) const {
  constexpr std::int64_t kStripe = 64;
  std::vector<double> means(static_cast<std::size_t>(columns));
  const std::int64_t stripes = (columns + kStripe - 1) / kStripe;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kStripe * rows));
  at::parallel_for(0, stripes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t stripe = begin; stripe < end; ++stripe) {
      const std::int64_t first = stripe * kStripe, width = std::min(kStripe, columns - first);
      double* const sums = means.data() + first;
      for (std::int64_t row = 0; row < rows; ++row) {
        const Weight* const own = values + row * columns + first;
        for (std::int64_t i = 0; i < width; ++i) {
          const auto gradient = static_cast<double>(static_cast<float>(own[i]));
          sums[i] += gradient * gradient;
        }
      }
      for (std::int64_t i = 0; i < width; ++i)
        sums[i] *= factor * factor / static_cast<double>(rows);
    }
  });
  return means;
}

template <typename Weight>
double GradientMatrix<Weight>::squares(const std::vector<float>& row_factors,
                                       const std::vector<float>& column_factors) const {
  std::vector<double> sums(static_cast<std::size_t>(rows));
  over_rows(rows, columns, [&](std::int64_t row) {
    const Weight* const own = values + row * columns;
    const float by = row_factors[static_cast<std::size_t>(row)];
    sums[static_cast<std::size_t>(row)] = sum_of(columns, [&](std::int64_t i) {
      const auto step = static_cast<double>(static_cast<float>(own[i]) * by *
                                            column_factors[static_cast<std::size_t>(i)]);
      return step * step;
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <typename Weight>
void GradientMatrix<Weight>::step(const std::vector<float>& row_factors,
                                  const std::vector<float>& column_factors, float weight_factor,
                                  const Rounding& rounding, Weight* weights) const {
  over_rows(rows, columns, [&](std::int64_t row) {
    const std::int64_t first = row * columns;
    const float by = row_factors[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < columns; ++i) {
      const float next =
          static_cast<float>(weights[first + i]) * weight_factor -
          static_cast<float>(values[first + i]) * by * column_factors[static_cast<std::size_t>(i)];
      if constexpr (std::is_same_v<Weight, float>) {
        weights[first + i] = next;
      } else {
        weights[first + i] = rounded(next, rounding.weight_key, first + i);
      }
    }
  });
}

template struct GradientMatrix<float>;
template struct GradientMatrix<c10::BFloat16>;

}  // namespace pareprop::optim
