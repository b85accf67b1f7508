#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "pareprop/memory/device_pools.h"
#include "pareprop/memory/meter.h"

namespace pareprop::memory {

// Makes the meter count tensors of the meta device (Counted::meta) as if they had the memory they
// stand for, by the same tags. A training step on that device then tells the peak of a model of any
// size, without its memory. One that no memory could hold throws c10::OutOfMemoryError. Idempotent,
// thread-safe, for the rest of the process; for meta tensors made from then on.
void install_meta_meter();

// While it lives, meta tensors that this thread makes have a place in `pools`, and count as many
// bytes as it has. Null: as many as they request.
class MetaPoolsScope {
 public:
  explicit MetaPoolsScope(std::shared_ptr<DevicePools> pools);
  ~MetaPoolsScope();
  MetaPoolsScope(const MetaPoolsScope&) = delete;
  MetaPoolsScope& operator=(const MetaPoolsScope&) = delete;

 private:
  std::shared_ptr<DevicePools> previous_;
};

// While it lives, the place is in the pools of this stream. Without one it is in those of stream 0.
class MetaStreamScope {
 public:
  explicit MetaStreamScope(int stream);
  ~MetaStreamScope();
  MetaStreamScope(const MetaStreamScope&) = delete;
  MetaStreamScope& operator=(const MetaStreamScope&) = delete;

 private:
  int previous_;
};

// What a counted meta tensor would take.
struct MetaBlock {
  MetaBlock(std::size_t requested, Tag what);
  ~MetaBlock();
  MetaBlock(const MetaBlock&) = delete;
  MetaBlock& operator=(const MetaBlock&) = delete;

  const std::shared_ptr<DevicePools> pools;  // null: none
  DevicePools::Piece* const piece;
  const std::int64_t bytes;
  std::atomic<Tag> tag;
};

// The deleter of counted meta tensors, and what they are recognised by.
void release_meta(void* context);

}  // namespace pareprop::memory
