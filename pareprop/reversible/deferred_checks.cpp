#include "pareprop/reversible/deferred_checks.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "pareprop/ops/device_path.h"

namespace pareprop {
namespace {

std::vector<double> read_at_once(const std::vector<at::Tensor>& numbers) {
  // Those of one type together, so that a conversion serves them all.
  std::map<at::ScalarType, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < numbers.size(); ++i) by_type[numbers[i].scalar_type()].push_back(i);
  std::vector<at::Tensor> groups;
  std::vector<std::int64_t> first(numbers.size());  // of each tensor, in what is read
  std::int64_t count = 0;
  for (const auto& [type, members] : by_type) {
    std::vector<at::Tensor> flat;
    for (const std::size_t i : members) {
      flat.push_back(numbers[i].detach().reshape({-1}));
      first[i] = count;
      count += numbers[i].numel();
    }
    groups.push_back(at::cat(flat).to(at::kDouble));
  }
  const at::Tensor read = at::cat(groups).to(at::kCPU);
  const double* value = read.const_data_ptr<double>();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    values.insert(values.end(), value + first[i], value + first[i] + numbers[i].numel());
  }
  return values;
}

}  // namespace

std::vector<double> read_numbers(const std::vector<at::Tensor>& numbers) {
  const bool waits = std::any_of(numbers.begin(), numbers.end(),
                                 [](const at::Tensor& t) { return reads_wait(t.device()); });
  if (waits) return read_at_once(numbers);
  std::vector<double> values;
  for (const at::Tensor& t : numbers) {
    const at::Tensor wide = t.to(at::kDouble).contiguous();
    const double* value = wide.const_data_ptr<double>();
    values.insert(values.end(), value, value + wide.numel());
  }
  return values;
}

void DeferredChecks::add(std::vector<at::Tensor> numbers, Judge judge) {
  const std::lock_guard lock(mutex_);
  checks_.push_back({std::move(numbers), std::move(judge)});
}

void DeferredChecks::run() {
  std::vector<Check> checks;
  {
    const std::lock_guard lock(mutex_);
    checks.swap(checks_);
  }
  std::vector<at::Tensor> numbers;
  for (const Check& check : checks) {
    numbers.insert(numbers.end(), check.numbers.begin(), check.numbers.end());
  }
  if (checks.empty()) return;
  const std::vector<double> values = read_numbers(numbers);
  const double* next = values.data();
  for (const Check& check : checks) {
    std::int64_t count = 0;
    for (const at::Tensor& t : check.numbers) count += t.numel();
    if (!check.judge({next, static_cast<std::size_t>(count)})) return;
    next += count;
  }
}

}  // namespace pareprop
