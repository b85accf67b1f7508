#include "pareprop/ops/device_philox.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/mul.h>

#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "pareprop/ops/kernels/philox_source.h"

// Of libtorch_cuda, null without it: compiles the text of a function of one element, once, and runs
// it on all elements.
namespace at::cuda {
__attribute__((weak)) c10::SmallVector<at::Tensor> CompileAndLaunchKernel(
    const std::string& code, const std::string& name, int outputs,
    const c10::SmallVector<at::Tensor>& tensors, const c10::SmallVector<at::Scalar>& more,
    bool return_by_reference);
}  // namespace at::cuda

namespace pareprop {
namespace {

// Words of 32 bits in a Long: what lies above them is garbage until it is cut off.
constexpr std::int64_t kWord = 0xffffffff;
constexpr std::int64_t kFactors[] = {0xD2511F53, 0xCD9E8D57};
constexpr std::uint32_t kKeySteps[] = {0x9E3779B9, 0xBB67AE85};
constexpr int kRounds = 10;

void multiply_into(at::Tensor out, const at::Tensor& words, std::int64_t factor) {
  at::mul_out(out, words, at::native::wrapped_scalar_tensor(factor));
}

// Some 75 launches, each of which goes through all numbers.
at::Tensor by_operators(std::uint32_t threshold, std::uint64_t key, std::uint64_t draw,
                        std::int64_t first, std::int64_t count, c10::Device device) {
  const std::int64_t skipped = first % 4, counters = (skipped + count + 3) / 4;
  const auto options = at::TensorOptions(at::kLong).device(device);
  // Words 0 and 2 of all counters, which a round multiplies, and words 1 and 3, which it adds.
  at::Tensor even = at::empty({2, counters}, options), odd = at::empty({2, counters}, options);
  at::Tensor number = even.select(0, 0);
  at::arange_out(number, first / 4, first / 4 + counters, 1);
  even.select(0, 1).fill_(static_cast<std::int64_t>(draw & kWord));
  odd.select(0, 0).zero_();
  odd.select(0, 1).fill_(static_cast<std::int64_t>(draw >> 32));
  at::Tensor products = at::empty_like(even);
  auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    multiply_into(products.select(0, 0), even.select(0, 1), kFactors[1]);
    multiply_into(products.select(0, 1), even.select(0, 0), kFactors[0]);
    at::bitwise_right_shift_out(even, products, 32);
    even.bitwise_xor_(odd);
    even.select(0, 0).bitwise_xor_(static_cast<std::int64_t>(low));
    even.select(0, 1).bitwise_xor_(static_cast<std::int64_t>(high));
    even.bitwise_and_(kWord);
    std::swap(odd, products);
    low += kKeySteps[0];
    high += kKeySteps[1];
  }
  odd.bitwise_and_(kWord);
  const at::Tensor result = at::empty({counters, 4}, options.dtype(at::kBool));
  for (int word = 0; word < 4; ++word) {
    at::Tensor out = result.select(1, word);
    at::ge_out(out, (word % 2 == 0 ? even : odd).select(0, word / 2),
               static_cast<std::int64_t>(threshold));
  }
  return result.view({-1}).narrow(0, skipped, count);
}

at::Tensor by_one_kernel(std::uint32_t threshold, std::uint64_t key, std::uint64_t draw,
                         std::int64_t first, std::int64_t count, c10::Device device) {
  const bool narrow = first + count <= std::numeric_limits<std::int32_t>::max();
  const auto options = at::TensorOptions(narrow ? at::kInt : at::kLong).device(device);
  const c10::SmallVector<at::Scalar> numbers{static_cast<std::int64_t>(key),
                                             static_cast<std::int64_t>(draw),
                                             static_cast<std::int64_t>(threshold)};
  return at::cuda::CompileAndLaunchKernel(kPhiloxText, kPhiloxName, 1,
                                          {at::arange(first, first + count, options)}, numbers,
                                          false)[0]
      .to(at::kBool);
}

// Looked at once in a process, which waits for the device: a compiler that is missing or at fault
// must not change a mask.
bool has_right_kernel(c10::Device device) {
  if (!device.is_cuda() || at::cuda::CompileAndLaunchKernel == nullptr) return false;
  static const bool right = [&] {
    constexpr std::uint32_t kHalf = 0x80000000;
    constexpr std::uint64_t kKey = 0xfedcba9876543210, kDraw = 0x1122334455667788;
    constexpr std::int64_t kFirst = 4711, kCount = 10007;
    try {
      return by_one_kernel(kHalf, kKey, kDraw, kFirst, kCount, device)
          .equal(by_operators(kHalf, kKey, kDraw, kFirst, kCount, device));
    } catch (const std::exception&) {
      return false;
    }
  }();
  return right;
}

}  // namespace

at::Tensor philox_at_least(std::uint32_t threshold, std::uint64_t key, std::uint64_t draw,
                           std::int64_t first, std::int64_t count, c10::Device device) {
  if (has_right_kernel(device)) return by_one_kernel(threshold, key, draw, first, count, device);
  return by_operators(threshold, key, draw, first, count, device);
}

}  // namespace pareprop
