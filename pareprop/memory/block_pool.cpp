#include "pareprop/memory/block_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "pareprop/memory/poison.h"

namespace pareprop::memory {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The class is room for data; the header comes on top, for one page more. Inside the class it would
// push every power of two to the next one.
std::size_t mapping_bytes(int size_class) {
  return round_up(sizeof(Block) + class_bytes(size_class), page());
}

Block* map_block(int size_class) {
  const std::size_t bytes = mapping_bytes(size_class);
  const bool huge = class_bytes(size_class) >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : page();
  const std::size_t reserved = bytes + alignment - page();
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;

  char* const begin = static_cast<char*>(base);
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t before = round_up(address, alignment) - address;
  const std::size_t after = reserved - before - bytes;
  if (before > 0) munmap(begin, before);
  if (after > 0) munmap(begin + before + bytes, after);
#ifdef MADV_HUGEPAGE
  if (huge) madvise(begin + before, bytes, MADV_HUGEPAGE);
#endif
  auto* block = new (begin + before) Block;
  block->size_class = size_class;
  return block;
}

// A chain linked by `older`. Outside the lock: freeing pages takes long, and the other lane may
// find what it wants in the pool meanwhile.
void unmap_blocks(Block* chain) {
  while (chain != nullptr) {
    Block* const block = std::exchange(chain, chain->older);
    const std::size_t bytes = mapping_bytes(block->size_class);
    unpoison(block, bytes);
    munmap(block, bytes);
  }
}

Block* prepare(Block* block, std::size_t bytes) {
  block->asked = bytes;
  const std::size_t capacity = class_bytes(block->size_class);
  unpoison(block->data(), bytes);
  poison(static_cast<char*>(block->data()) + bytes, capacity - bytes);
  return block;
}

}  // namespace

BlockPool::~BlockPool() { trim(); }

Block* BlockPool::take(std::size_t bytes) {
  const auto asked = static_cast<std::int64_t>(bytes);
  const int wanted = size_class(bytes);
  const auto mapping = static_cast<std::int64_t>(mapping_bytes(wanted));

  Block* block = nullptr;
  Block* evicted = nullptr;
  {
    const std::lock_guard guard(mutex_);
    block = take_free(bytes);
    if (block != nullptr) {
      ++usage_.hits;
      asked_ += asked;
      peak_ = std::max(peak_, asked_);
    } else {
      evicted = evict(limit(std::max(peak_, asked_ + asked)) - mapping);
      usage_.mapped += mapping;
    }
  }
  if (block != nullptr) return prepare(block, bytes);

  unmap_blocks(evicted);
  block = map_block(wanted);
  if (block == nullptr) {
    trim();
    block = map_block(wanted);
  }
  // Asked bytes are counted only now: a request that cannot be met must not raise the peak, and
  // with it what the pool may keep.
  const std::lock_guard guard(mutex_);
  if (block == nullptr) {
    usage_.mapped -= mapping;
    return nullptr;
  }
  ++usage_.misses;
  asked_ += asked;
  peak_ = std::max(peak_, asked_);
  return prepare(block, bytes);
}

void BlockPool::give_back(Block* block) {
  poison(block->data(), class_bytes(block->size_class));
  const std::lock_guard guard(mutex_);
  FreeList& list = free_[static_cast<std::size_t>(block->size_class)];
  block->newer = nullptr;
  block->older = list.newest;
  block->freed_at = ++frees_;
  (list.newest != nullptr ? list.newest->newer : list.oldest) = block;
  list.newest = block;
  usage_.unused += static_cast<std::int64_t>(mapping_bytes(block->size_class));
  asked_ -= static_cast<std::int64_t>(block->asked);
}

void BlockPool::trim() {
  Block* evicted = nullptr;
  {
    const std::lock_guard guard(mutex_);
    evicted = evict(0);
    peak_ = asked_;
  }
  unmap_blocks(evicted);
}

PoolUsage BlockPool::usage() const {
  const std::lock_guard guard(mutex_);
  return usage_;
}

Block* BlockPool::take_free(std::size_t bytes) {
  const int exact = size_class(bytes);
  for (int each = exact; each < kSizeClasses; ++each) {
    if (each > exact && class_bytes(each) > bytes + bytes / 4) break;
    Block* const block = free_[static_cast<std::size_t>(each)].newest;
    if (block != nullptr) {
      unlink(block);
      return block;
    }
  }
  return nullptr;
}

void BlockPool::unlink(Block* block) {
  FreeList& list = free_[static_cast<std::size_t>(block->size_class)];
  (block->newer != nullptr ? block->newer->older : list.newest) = block->older;
  (block->older != nullptr ? block->older->newer : list.oldest) = block->newer;
  usage_.unused -= static_cast<std::int64_t>(mapping_bytes(block->size_class));
}

// Takes free blocks out of the lists, the longest unused first, until the bound holds or none is
// left. Looking through all classes for each is cheap beside the unmapping that follows.
Block* BlockPool::evict(std::int64_t mapped_at_most) {
  Block* chain = nullptr;
  while (usage_.mapped > mapped_at_most) {
    Block* victim = nullptr;
    for (const FreeList& list : free_) {
      if (list.oldest == nullptr) continue;
      if (victim == nullptr || list.oldest->freed_at < victim->freed_at) victim = list.oldest;
    }
    if (victim == nullptr) break;
    unlink(victim);
    usage_.mapped -= static_cast<std::int64_t>(mapping_bytes(victim->size_class));
    victim->older = std::exchange(chain, victim);
  }
  return chain;
}

}  // namespace pareprop::memory
