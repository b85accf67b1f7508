#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <mutex>
#include <vector>

namespace pareprop {

// Note [Reads after the step]
// A host that reads a value of an accelerator waits for all work that it issued before, and the
// device then idles until it gets more. So what a step has to check (the range of exact streams,
// drift, whether gradients are finite) stays on the device as numbers, and whoever runs the step
// reads them all in one transfer when everything is issued. An error comes later than on the CPU,
// with the same words.

// Numbers on a device, and who judges them when they are read. Thread-safe.
class DeferredChecks {
 public:
  // Sees the values of its numbers, one after the other. Throws what is wrong. Returns false when
  // what was added after it means nothing.
  using Judge = std::function<bool(c10::ArrayRef<double> values)>;
  void add(std::vector<at::Tensor> numbers, Judge judge);

  // Reads all numbers in one transfer and gives them to their judges in the order in which they
  // were added, until one throws or returns false. Forgets everything, also when it throws.
  void run();

 private:
  struct Check {
    std::vector<at::Tensor> numbers;
    Judge judge;
  };
  std::mutex mutex_;
  std::vector<Check> checks_;  // guarded by mutex_
};

// The values of all elements, as they follow each other; in one transfer where reading waits.
std::vector<double> read_numbers(const std::vector<at::Tensor>& numbers);

}  // namespace pareprop
