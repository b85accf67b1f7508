#include "tests/simulated_device/memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/simulated_device/machine.h"

namespace pareprop::testing {
namespace {

constexpr std::size_t kSmallest = 512;  // bytes, and their alignment, as CUDA's

std::byte* host_memory(std::size_t bytes) {
  void* const data = std::aligned_alloc(kSmallest, bytes);
  TORCH_CHECK(data != nullptr, "the simulated device has no ", bytes, " bytes left");
  return static_cast<std::byte*>(data);
}

// All bits set: NaN in every floating type.
void spoil(void* data, std::size_t bytes) { std::memset(data, 0xff, bytes); }

// Multiples of 512 bytes, and from 4 KiB on eight sizes from a power of two to the next.
std::size_t block_bytes(std::size_t requested) {
  const std::size_t step =
      std::max(kSmallest, std::bit_floor(std::max<std::size_t>(requested, 1)) / 8);
  return (requested + step - 1) / step * step;
}

class Pools {
 public:
  static Pools& get() {
    static auto* const pools = new Pools;
    return *pools;
  }

  Block* take(std::size_t requested, int actor) {
    const std::lock_guard lock(Machine::get().mutex);
    collect_recorded();
    const std::size_t bytes = block_bytes(requested);
    auto& free = free_[{actor, bytes}];
    Block* block = free.empty() ? nullptr : free.back();
    expect_order(actor, block, requested);
    SimulatedDevice::Memory& memory = memory_[at(actor / SimulatedDevice::kStreams)];
    if (block != nullptr) {
      free.pop_back();
    } else {
      expect_free(bytes);
      block = new Block;
      block->data = host_memory(bytes);
      block->bytes = bytes;
      block->actor = actor;
      memory.reserved += static_cast<std::int64_t>(bytes);
      memory.peak_reserved = std::max(memory.peak_reserved, memory.reserved);
    }
    block->requested = requested;
    block->piece = as_cuda_[at(actor / SimulatedDevice::kStreams)].take(actor, requested);
    memory.allocated += static_cast<std::int64_t>(bytes);
    memory.peak_allocated = std::max(memory.peak_allocated, memory.allocated);
    spoil(block->data, bytes);
    return block;
  }

  void give_back(Block* block) {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    block->history.free();
    block->requested = 0;
    memory_[at(block->actor / SimulatedDevice::kStreams)].allocated -=
        static_cast<std::int64_t>(block->bytes);
    if (block->recorded.empty()) return free(block);
    Waiting waiting{block, {}};
    for (const int actor : block->recorded) {
      waiting.until.emplace_back(actor, machine.clocks[at(actor)][actor]);
    }
    waiting_.push_back(std::move(waiting));
  }

  void record(Block* block, int actor) {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    if (block->actor == actor) return;
    ++machine.counts.recorded_memory;
    if (machine.left_out(Mutation::Kind::recorded_memory)) return;
    auto& recorded = block->recorded;
    if (std::find(recorded.begin(), recorded.end(), actor) == recorded.end()) {
      recorded.push_back(actor);
    }
  }

  SimulatedDevice::Memory memory(int device) {
    const std::lock_guard lock(Machine::get().mutex);
    return memory_[at(device)];
  }

  SimulatedDevice::Memory as_cuda(int device) {
    const std::lock_guard lock(Machine::get().mutex);
    const auto& usage = as_cuda_[at(device)].usage();
    return {.allocated = usage.allocated,
            .reserved = usage.reserved,
            .peak_allocated = usage.peak_allocated,
            .peak_reserved = usage.peak_reserved};
  }

  void reset_peaks() {
    const std::lock_guard lock(Machine::get().mutex);
    for (memory::DevicePools& pools : as_cuda_) pools.reset_peaks();
    for (SimulatedDevice::Memory& memory : memory_) {
      memory.peak_allocated = memory.allocated;
      memory.peak_reserved = memory.reserved;
    }
  }

  void empty_cache() {
    const std::lock_guard lock(Machine::get().mutex);
    collect_recorded();
    for (memory::DevicePools& pools : as_cuda_) pools.empty_cache();
    early_.clear();
    for (auto& [key, blocks] : free_) {
      for (const Block* block : blocks) {
        memory_[at(block->actor / SimulatedDevice::kStreams)].reserved -=
            static_cast<std::int64_t>(block->bytes);
        std::free(block->data);
        delete block;
      }
      blocks.clear();
    }
  }

 private:
  static void expect_free(std::size_t bytes) {
    const Machine& machine = Machine::get();
    TORCH_CHECK_WITH(OutOfMemoryError, !machine.has_come(machine.fault.memory_taken_after),
                     "simulated out of memory. Tried to allocate ", bytes,
                     " bytes, and 0 bytes are free. Other processes have the rest");
  }

  struct Waiting {
    Block* block;
    std::vector<std::pair<int, std::uint64_t>> until;
  };

  // What operators that the stream starts now come after.
  static VectorClock now(int actor) {
    const Machine& machine = Machine::get();
    VectorClock clock = machine.clocks[at(actor)];
    clock.join(machine.host);
    return clock;
  }

  // The tensor that the stream makes now may get all memory that its tensors gave back, whatever
  // their sizes. Of the block that it does get, its first use tells.
  void expect_order(int actor, const Block* given, std::size_t bytes) {
    std::vector<Block*>& early = early_[actor];
    if (early.empty()) return;
    const VectorClock clock = now(actor);
    std::erase_if(early, [&](const Block* block) {
      return block == given || block->history.after(clock) == nullptr;
    });
    for (const Block* block : std::exchange(early, {})) {
      const Access& use = *block->history.after(clock);
      Machine::get().report("race: a tensor of " + std::to_string(bytes) + " bytes on stream " +
                            std::to_string(actor % SimulatedDevice::kStreams) +
                            " of simulated:" + std::to_string(actor / SimulatedDevice::kStreams) +
                            " may get memory that " + use.text() +
                            (use.write ? " wrote" : " read") +
                            " for a tensor of that stream that is freed since, and no event "
                            "orders the one after the other");
    }
  }

  void free(Block* block) {
    if (block->history.after(now(block->actor)) != nullptr) early_[block->actor].push_back(block);
    as_cuda_[at(block->actor / SimulatedDevice::kStreams)].give_back(block->piece);
    free_[{block->actor, block->bytes}].push_back(block);
  }

  // A real allocator asks whether its events are done; here they are when the host has waited.
  void collect_recorded() {
    const Machine& machine = Machine::get();
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      const bool done = std::all_of(waiting.until.begin(), waiting.until.end(), [&](auto point) {
        return machine.host_knows(point.first, point.second);
      });
      if (!done) return false;
      waiting.block->recorded.clear();
      free(waiting.block);
      return true;
    });
  }

  // All guarded by the machine's mutex.
  std::map<std::pair<int, std::size_t>, std::vector<Block*>> free_;  // by stream and size
  // By stream: blocks that are free although the stream is not ordered after all their uses.
  std::map<int, std::vector<Block*>> early_;
  std::vector<Waiting> waiting_;
  std::array<SimulatedDevice::Memory, SimulatedDevice::kDevices> memory_;
  std::array<memory::DevicePools, SimulatedDevice::kDevices> as_cuda_;
};

void delete_block(void* block) {
  if (block != nullptr) Pools::get().give_back(static_cast<Block*>(block));
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(kSimulated, current_device());
    if (bytes == 0) return {nullptr, nullptr, &delete_block, device};
    Block* const block = Pools::get().take(bytes, current_actor(device.index()));
    return {block->data, block, &delete_block, device};
  }
  // The context is the block, so there is no way from a bare pointer back.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { Pools::get().empty_cache(); }
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    record_on_stream(memory, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const SimulatedDevice::Memory memory = Pools::get().as_cuda(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = memory.allocated;
    stats.allocated_bytes[0].peak = memory.peak_allocated;
    stats.reserved_bytes[0].current = memory.reserved;
    stats.reserved_bytes[0].peak = memory.peak_reserved;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { Pools::get().reset_peaks(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto used = static_cast<std::size_t>(Pools::get().memory(device).reserved);
    const std::lock_guard lock(Machine::get().mutex);
    if (Machine::get().has_come(Machine::get().fault.memory_taken_after)) return {0, kTotal};
    return {kTotal - std::min(kTotal, used), kTotal};
  }

 private:
  static constexpr std::size_t kTotal = std::size_t{8} << 30;
};

// Pinned memory is never handed out twice: what a copy that is under way may still read or write
// belongs to nobody else.
class PinnedMemory final : public at::HostAllocator {
 public:
  static PinnedMemory& get() {
    static auto* const memory = new PinnedMemory;
    return *memory;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, at::kCPU};
    std::byte* const data = host_memory(block_bytes(bytes));
    const std::lock_guard lock(mutex_);
    pieces_[data] = bytes;
    return {data, data, &delete_piece, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_piece; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool holds(const void* data) {
    const std::lock_guard lock(mutex_);
    auto after = pieces_.upper_bound(static_cast<const std::byte*>(data));
    if (after == pieces_.begin()) return false;
    --after;
    return static_cast<const std::byte*>(data) < after->first + after->second;
  }

 private:
  static void delete_piece(void* data) {
    PinnedMemory& memory = get();
    const std::lock_guard lock(memory.mutex_);
    memory.pieces_.erase(static_cast<const std::byte*>(data));
    std::free(data);
  }

  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> pieces_;  // guarded by mutex_
};

}  // namespace

Block* block_of(const c10::DataPtr& memory) {
  if (memory.get_deleter() != &delete_block) return nullptr;
  return static_cast<Block*>(memory.get_context());
}

void record_on_stream(const c10::DataPtr& memory, const c10::Stream& stream) {
  {
    const std::lock_guard lock(Machine::get().mutex);
    Machine::get().recorded_memory.emplace_back(memory.get(), stream);
  }
  if (Block* const block = block_of(memory)) Pools::get().record(block, actor_of(stream));
}

bool is_pinned(const void* data) { return PinnedMemory::get().holds(data); }
c10::Allocator* pinned_allocator() { return &PinnedMemory::get(); }

void register_memory() {
  c10::SetAllocator(kSimulated, new DeviceMemory);
  at::setHostAllocator(kSimulated, &PinnedMemory::get());
}

SimulatedDevice::Memory SimulatedDevice::memory(int device) { return Pools::get().memory(device); }
SimulatedDevice::Memory SimulatedDevice::as_cuda(int device) {
  return Pools::get().as_cuda(device);
}
void SimulatedDevice::reset_peaks() { Pools::get().reset_peaks(); }
void SimulatedDevice::empty_cache() { Pools::get().empty_cache(); }

}  // namespace pareprop::testing
