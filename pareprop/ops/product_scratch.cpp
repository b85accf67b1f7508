#include "pareprop/ops/product_scratch.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"

namespace pareprop {
namespace {

// What a product of zeros takes besides its result.
std::int64_t tried_scratch(const at::Tensor& a, const at::Tensor& b) {
  const memory::PeaksKept uncounted;
  c10::AutoGradMode no_graph(false);
  const AutocastScope no_autocast(c10::DeviceType::CPU, {.enabled = false});
  auto zeros_like = [](const at::Tensor& t) {
    return at::empty_strided(t.sizes(), t.strides(), at::TensorOptions(at::kBFloat16)).zero_();
  };
  const at::Tensor left = zeros_like(a), right = zeros_like(b);
  at::Tensor out = at::matmul(left, right);  // what is kept from the first time on is kept
  const std::int64_t before = memory::usage().total_live;
  memory::reset_peaks();
  at::matmul_out(out, left, right);
  return memory::usage().total_peak - before;
}

// The most: sums of 256 rows, 1024 rows of b, 64 columns of each.
std::int64_t most_scratch(std::int64_t rows, std::int64_t inner) {
  return at::get_num_threads() * (std::min<std::int64_t>(rows, 256) * 64 * 4 +
                                  std::min<std::int64_t>(inner, 1024) * 64 * 2 + 1024);
}

std::int64_t scratch_bytes(const at::Tensor& a, const at::Tensor& b) {
  constexpr double kQuick = 1e8;  // multiply-accumulates
  const double macs = static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
  if (macs > kQuick || !memory::caching_allocator_installed()) {
    return most_scratch(a.numel() / a.size(-1), a.size(-1));
  }
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, std::int64_t> known;
  std::vector<std::int64_t> shape = a.sizes().vec();
  for (const at::IntArrayRef more : {a.strides(), b.sizes(), b.strides()}) {
    shape.insert(shape.end(), more.begin(), more.end());
  }
  shape.push_back(at::get_num_threads());
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.emplace(std::move(shape), 0);
  if (is_new) entry->second = tried_scratch(a, b);
  return entry->second;
}

}  // namespace

at::Tensor meta_scratch(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_meta() || !runs_kernels(a) || a.scalar_type() != at::kBFloat16 || cpu_lacks_bf16() ||
      a.numel() == 0) {
    return {};
  }
  return at::empty({scratch_bytes(a, b)}, a.options().dtype(at::kByte));
}

}  // namespace pareprop
