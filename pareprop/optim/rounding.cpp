#include "pareprop/optim/rounding.h"

#include <ATen/ops/zeros.h>

#include "pareprop/io/checksum.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/random_stream.h"

namespace pareprop::optim {
namespace {

std::uint64_t hash_of(const std::string& name) {
  io::Checksum hash;
  hash.update(name);
  return hash.value();
}

}  // namespace

StepCount::StepCount(std::uint64_t seed, const std::string& name, const at::Tensor& parameter)
    : key_(random_key({seed, hash_of(name)})) {
  const memory::TagScope tag(memory::Tag::optimizer);
  count_ = at::zeros(
      {}, at::TensorOptions(at::kLong).device(parameter.is_meta() ? parameter.device() : at::kCPU));
}

std::int64_t StepCount::begin_step() {
  return count_.is_meta() ? 1 : ++*count_.mutable_data_ptr<std::int64_t>();
}

Rounding StepCount::rounding() const {
  if (count_.is_meta()) return {};
  const auto step = static_cast<std::uint64_t>(*count_.const_data_ptr<std::int64_t>());
  return {.state_key = random_key({key_, step, 0}), .weight_key = random_key({key_, step, 1})};
}

}  // namespace pareprop::optim
