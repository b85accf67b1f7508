#include "pareprop/ops/random_stream.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/ops/device_path.h"
#include "pareprop/ops/device_philox.h"

namespace pareprop {
namespace {

thread_local RandomStream* current_stream = nullptr;
thread_local bool no_draw = false;

RandomStream& stream_for(const char* function) {
  if (current_stream == nullptr && no_draw) {
    throw std::logic_error(
        std::string("[") + function +
        "] called while gradients of a branch are computed: a part of the branch is checkpointed "
        "by itself, and would draw another mask than in the forward pass. Leave that checkpoint "
        "out: the stack recomputes the branch already");
  }
  if (current_stream == nullptr) {
    throw std::logic_error(
        std::string("[") + function +
        "] no random stream on this thread: call it inside a branch of a stack or "
        "of checkpoint(), or open a RandomScope");
  }
  return *current_stream;
}

void check_probability(const char* function, double drop) {
  if (!(drop >= 0.0 && drop < 1.0)) {
    throw std::invalid_argument(std::string("[") + function +
                                "] expected a probability in [0, 1), got " + std::to_string(drop));
  }
}

constexpr std::int64_t kGroup = 4;  // numbers of one Philox counter

}  // namespace

template <typename Scalar>
void MaskDraw::fill(std::int64_t first, std::int64_t count, Scalar* out) const {
  const std::uint32_t least = threshold();
  const auto kept = static_cast<Scalar>(scale());
  at::Philox4_32 engine(key, draw, static_cast<std::uint64_t>(first / kGroup));
  for (std::int64_t skipped = first % kGroup; skipped > 0; --skipped) engine();
  for (std::int64_t i = 0; i < count; ++i) out[i] = engine() < least ? Scalar(0) : kept;
}
template void MaskDraw::fill(std::int64_t, std::int64_t, float*) const;
template void MaskDraw::fill(std::int64_t, std::int64_t, double*) const;
template void MaskDraw::fill(std::int64_t, std::int64_t, c10::BFloat16*) const;
template void MaskDraw::fill(std::int64_t, std::int64_t, c10::Half*) const;

at::Tensor RandomStream::keep_mask(at::IntArrayRef sizes, double drop,
                                   const at::TensorOptions& options) {
  return draw_mask(drop).mask(sizes, options);
}

at::Tensor MaskDraw::mask(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  const std::int64_t count = c10::multiply_integers(sizes);
  if (!runs_kernels(options.device())) {
    const at::Tensor kept =
        philox_at_least(threshold(), key, draw, part.begin(count), count, options.device());
    return kept.view(sizes).to(options.dtype().toScalarType()).mul_(scale());
  }
  at::Tensor mask = at::empty(sizes, options.requires_grad(false));
  if (mask.is_meta()) return mask;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, mask.scalar_type(), "keep_mask", [&] {
    scalar_t* out = mask.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, count, 16384, [&](std::int64_t from, std::int64_t to) {
      fill(part.begin(count) + from, to - from, out + from);
    });
  });
  return mask;
}

std::uint64_t random_key(std::initializer_list<std::uint64_t> numbers) {
  return random_key(0x9e3779b97f4a7c15ULL, numbers);
}

std::uint64_t random_key(std::uint64_t begun, std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t key = begun;
  for (const std::uint64_t number : numbers) {
    // The finaliser of splitmix64, applied to the sum so far.
    key += number + 0x9e3779b97f4a7c15ULL;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
    key ^= key >> 31;
  }
  return key;
}

RandomScope::RandomScope(RandomStream& stream) : previous_(current_stream) {
  current_stream = &stream;
}
RandomScope::~RandomScope() { current_stream = previous_; }

NoDrawScope::NoDrawScope()
    : previous_stream_(std::exchange(current_stream, nullptr)),
      previous_(std::exchange(no_draw, true)) {}
NoDrawScope::~NoDrawScope() {
  current_stream = previous_stream_;
  no_draw = previous_;
}

bool in_branch() { return current_stream != nullptr || no_draw; }

MaskDraw draw_dropout(double drop) {
  check_probability("dropout", drop);
  return stream_for("dropout").draw_mask(drop);
}

at::Tensor dropout(const at::Tensor& x, double drop) {
  check_probability("dropout", drop);
  if (drop == 0.0) return x;
  return x.mul(stream_for("dropout").keep_mask(x.sizes(), drop, x.options()));
}

at::Tensor drop_path(const at::Tensor& x, double drop) {
  check_probability("drop_path", drop);
  if (drop == 0.0) return x;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  if (!sizes.empty()) sizes[0] = x.size(0);
  return x.mul(stream_for("drop_path").keep_mask(sizes, drop, x.options()));
}

}  // namespace pareprop
