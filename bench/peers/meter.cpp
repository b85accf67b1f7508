// The library's allocator and meter for a Python process: loaded by rival.py through ctypes, after
// torch, in a process that is asked for its memory and never timed.

#include "pareprop/memory/meter.h"

#include <c10/core/StorageImpl.h>

#include "pareprop/memory/caching_allocator.h"

extern "C" {

void peers_meter_install() { pareprop::memory::install_caching_allocator(); }

void peers_meter_reset_peaks() { pareprop::memory::reset_peaks(); }

// Bytes of all but what peers_meter_gradient() was told of. What was allocated before the meter was
// installed, the parameters and the batch, is not seen at all.
std::int64_t peers_meter_activation_live() { return pareprop::memory::usage().activation_live; }
std::int64_t peers_meter_activation_peak() { return pareprop::memory::usage().activation_peak; }
std::int64_t peers_meter_total_live() { return pareprop::memory::usage().total_live; }
std::int64_t peers_meter_total_peak() { return pareprop::memory::usage().total_peak; }

// `storage`: tensor.untyped_storage()._cdata. From now on it counts as a gradient.
void peers_meter_gradient(void* storage) {
  pareprop::memory::retag(static_cast<c10::StorageImpl*>(storage)->data_ptr(),
                          pareprop::memory::Tag::gradients);
}
}
