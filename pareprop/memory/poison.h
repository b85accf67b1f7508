#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define PAREPROP_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PAREPROP_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef PAREPROP_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace pareprop::memory {

// AddressSanitizer does not know when memory of a pool is in use: these tell it. Nothing in other
// builds.
#ifdef PAREPROP_ADDRESS_SANITIZER
inline void poison(const void* begin, std::size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}
inline void unpoison(const void* begin, std::size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}
#else
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace pareprop::memory
