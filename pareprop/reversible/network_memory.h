#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "pareprop/memory/meter.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

// Where the weights of a network are; the CPU if it has none.
c10::Device device_of(const Network& network);

// Totals of a device: of the CPU what the meter counts, with all its tags.
memory::Usage usage_on(c10::Device device);
void reset_peaks_on(c10::Device device);

// Memory on the device of a network. On the CPU it is what the meter counts. An accelerator has an
// allocator of its own, which knows totals only: weights and gradients are counted by their
// storages, the optimizer's bytes are those that the caller names, and all the rest is
// Tag::other. The activations at the peak are then the peak without weights, optimizer and the
// gradients that are there now.
memory::Usage usage_of(const Network& network, std::int64_t optimizer_bytes = 0);

}  // namespace pareprop
