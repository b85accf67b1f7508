#pragma once

#include <cstdint>

namespace pareprop {

// Counts the multiply-accumulates of what this thread computes on the meta device, matrix products
// and convolutions, from its making on. Several may count at once.
class MacCounter {
 public:
  MacCounter();
  ~MacCounter();
  MacCounter(const MacCounter&) = delete;
  MacCounter& operator=(const MacCounter&) = delete;

  double macs() const;
  // Of them, those outside of any backward pass.
  double forward_macs() const;

 private:
  double before_, forward_before_;
};

// For ops that leave out their arithmetic on the meta device, where no operator of torch stands for
// it.
void add_meta_macs(double macs);

}  // namespace pareprop
