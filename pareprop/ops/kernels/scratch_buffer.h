#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace pareprop {

// Begins where a cache line does: BLAS may add up in another order where it does not, and then bits
// would depend on which memory a thread was given.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  CacheLineAllocator() = default;
  template <typename U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kLine); }
  bool operator==(const CacheLineAllocator&) const { return true; }
};

template <typename T>
using ScratchBuffer = std::vector<T, CacheLineAllocator<T>>;

// The same memory from use to use, with room for `count` values.
template <typename T>
T* sized(ScratchBuffer<T>& buffer, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace pareprop
