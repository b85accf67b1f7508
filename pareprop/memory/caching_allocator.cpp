#include "pareprop/memory/caching_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

#include "pareprop/memory/block_pool.h"
#include "pareprop/memory/meta_meter.h"
#include "pareprop/memory/out_of_memory.h"
#include "pareprop/memory/poison.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace pareprop::memory {
namespace {

// Leaked on purpose, as the allocator below: tensors may outlive static destruction.
BlockPool& pool() {
  static auto* const instance = new BlockPool;
  return *instance;
}

// Who made the memory that is not ours.
std::atomic<c10::Allocator*> previous{nullptr};

// Note [Memory of others]
// torch frees some memory (the buffers of oneDNN tensors) with raw_deallocate of the allocator that
// is current then, whichever made it. Such a pointer must be known as foreign and go to the
// allocator we replaced. So a header carries a mark that depends on its address and is wiped when
// the block is released. Before memory of others there may be nothing at all (not every malloc
// keeps a header), hence the second rule: our header is always on the page of the data, and where
// it could not be, nothing is read.
constexpr std::uintptr_t kPage = 4096;  // or more, in multiples

bool may_have_header(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kPage >= sizeof(Block);
}

std::uint64_t mark_of(const Block* block) {
  return reinterpret_cast<std::uintptr_t>(block) ^ 0x9d3f'52c7'b1e8'46a5u;
}

// Headers are poisoned while tensors use their data, so that a write before the data is seen. These
// functions read them all the same. The mark may turn out to be memory of others, which no tool
// should check.
__attribute__((no_sanitize_address, no_sanitize_thread)) std::uint64_t read_mark(
    const Block* block) {
  return __atomic_load_n(&block->mark, __ATOMIC_RELAXED);
}

__attribute__((no_sanitize_address)) Tag exchange_tag(Block* block, Tag tag) {
  return static_cast<Tag>(__atomic_exchange_n(reinterpret_cast<std::uint8_t*>(&block->tag),
                                              static_cast<std::uint8_t>(tag), __ATOMIC_ACQ_REL));
}

__attribute__((no_sanitize_address)) std::int64_t read_asked(const Block* block) {
  return static_cast<std::int64_t>(block->asked);
}

// One in 64 blocks would begin with a page, its header on the page before: it is moved up.
Block* take_small(std::size_t bytes) {
  void* start = nullptr;
  if (posix_memalign(&start, alignof(Block), sizeof(Block) + bytes) != 0) return nullptr;
  auto* place = static_cast<Block*>(start);
  if (!may_have_header(place + 1)) {
    std::free(start);
    if (posix_memalign(&start, alignof(Block), 2 * sizeof(Block) + bytes) != 0) return nullptr;
    place = static_cast<Block*>(start);
    if (!may_have_header(place + 1)) ++place;
  }
  auto* block = new (place) Block;
  block->start = start;
  block->asked = bytes;
  return block;
}

Block* take(std::size_t bytes) {
  if (bytes > kLargest) return nullptr;
  if (bytes >= kSmallestLarge) return pool().take(bytes);
  if (Block* block = take_small(bytes)) return block;
  trim();
  return take_small(bytes);
}

void report_to_profiler(void* data, std::int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  c10::reportMemoryUsageToProfiler(data, bytes, static_cast<std::size_t>(usage().total_live),
                                   static_cast<std::size_t>(pool_usage().mapped), c10::kCPU);
}

// The deleter of all our memory, and what it is recognised by. The bytes are released in the meter
// before the block can be taken again, or its next use would be counted on top of this one.
void release(void* data) {
  if (data == nullptr) return;
  Block* const block = Block::of(data);
  if (!may_have_header(data) || read_mark(block) != mark_of(block)) {
    previous.load()->raw_deallocate(data);
    return;
  }
  unpoison(block, sizeof(Block));
  // Atomic, so that the compiler does not drop it as a write to memory about to be freed.
  __atomic_store_n(&block->mark, std::uint64_t{0}, __ATOMIC_RELAXED);
  const auto bytes = static_cast<std::int64_t>(block->asked);
  detail::count(Counted::cpu, block->tag, -bytes);
  report_to_profiler(data, -bytes);
  if (block->size_class == Block::kSmall) {
    std::free(block->start);
  } else {
    pool().give_back(block);
  }
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    Block* const block = take(bytes);
    if (block == nullptr) {
      if (c10::memoryProfilingEnabled()) {
        c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes),
                                         static_cast<std::size_t>(usage().total_live),
                                         static_cast<std::size_t>(pool_usage().mapped), c10::kCPU);
      }
      throw_out_of_memory(bytes);
    }
    block->mark = mark_of(block);
    block->tag = current_tag();
    void* const data = block->data();
    detail::count(Counted::cpu, block->tag, static_cast<std::int64_t>(bytes));
    poison(block, sizeof(Block));
    report_to_profiler(data, static_cast<std::int64_t>(bytes));
    return {data, data, &release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    default_copy_data(dest, src, count);
  }
};

CachingAllocator& allocator() {
  static auto* const instance = new CachingAllocator;
  return *instance;
}

}  // namespace

void install_caching_allocator() {
  static std::mutex mutex;
  static bool fork_handled = false;
  const std::lock_guard guard(mutex);
  c10::Allocator* const current = c10::GetCPUAllocator();
  if (current == &allocator()) return;
  previous.store(current);
  if (!fork_handled) {
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
    fork_handled = true;
  }
  // torch ignores an allocator of lower priority than the present one without a word.
  c10::SetCPUAllocator(&allocator(), std::numeric_limits<std::uint8_t>::max());
}

bool caching_allocator_installed() { return c10::GetCPUAllocator() == &allocator(); }

void trim() {
  pool().trim();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

PoolUsage pool_usage() { return pool().usage(); }

bool retag(const c10::DataPtr& data, Tag tag) {
  if (data.get_deleter() == &release_meta && data.get_context() != nullptr) {
    auto* const block = static_cast<MetaBlock*>(data.get_context());
    detail::move(Counted::meta, block->tag.exchange(tag), tag, block->bytes);
    return true;
  }
  if (data.get_deleter() != &release) return false;
  if (data.get_context() == nullptr) return true;
  Block* const block = Block::of(data.get_context());
  detail::move(Counted::cpu, exchange_tag(block, tag), tag, read_asked(block));
  return true;
}

}  // namespace pareprop::memory
