#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "pareprop/memory/block.h"
#include "pareprop/memory/pool_usage.h"
#include "pareprop/memory/size_classes.h"

namespace pareprop::memory {

// Large blocks, mapped from the system and kept when they are given back. Thread-safe.
//
// Note [What the pool keeps]
// A request is served by a free block of its class, the one freed last, or by one up to a quarter
// larger than asked for. Otherwise a block is mapped, and when that would take the mapped bytes
// above limit(peak of asked bytes), free blocks are unmapped first, the longest unused ones before
// others: sizes of a phase that has passed leave when new ones come. So mapped bytes are at most
// limit(peak), or, when no block was free at the peak, what the blocks in use took then: 1.25 times
// what was asked for, and a page each.
class BlockPool {
 public:
  static constexpr std::int64_t kSlack = std::int64_t{64} << 20;
  static std::int64_t limit(std::int64_t peak) { return peak + peak / 8 + kSlack; }

  BlockPool() = default;
  ~BlockPool();  // blocks in use stay mapped
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // At least `bytes` of data (kSmallestLarge to kLargest), 64 bytes after the start of a page, from
  // 2 MiB on of a huge page. nullptr when the system gives none although all free blocks were
  // returned to it.
  Block* take(std::size_t bytes);
  void give_back(Block* block);

  // Unmaps all free blocks; the peak starts again from what is in use.
  void trim();
  PoolUsage usage() const;

  // Around fork(): a child that inherits a locked mutex could never allocate.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct FreeList {
    Block* newest = nullptr;
    Block* oldest = nullptr;
  };

  Block* take_free(std::size_t bytes);
  void unlink(Block* block);
  Block* evict(std::int64_t mapped_at_most);

  mutable std::mutex mutex_;
  std::array<FreeList, kSizeClasses> free_{};
  PoolUsage usage_;
  std::int64_t asked_ = 0;
  std::int64_t peak_ = 0;
  std::uint64_t frees_ = 0;
};

}  // namespace pareprop::memory
