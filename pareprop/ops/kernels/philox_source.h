#pragma once

// One number of Philox as C++ and as text: tests run it on the CPU, torch compiles the text for a
// GPU when it is first asked for. Whether number `index` of draw `draw` with `key` is at least
// `threshold`, as 1 or 0; all bits of the arguments count. No comments, directives or types but
// those of the language itself: it is a macro's argument.
// clang-format off
#define PAREPROP_PHILOX_SOURCE                                                                      \
  template <typename T>                                                                             \
  T philox_at_least(T index, long long key, long long draw, long long threshold) {                  \
    const unsigned long long counter = static_cast<unsigned long long>(index) / 4;                  \
    unsigned int word[4] = {static_cast<unsigned int>(counter),                                     \
                            static_cast<unsigned int>(counter >> 32),                               \
                            static_cast<unsigned int>(draw),                                        \
                            static_cast<unsigned int>(static_cast<unsigned long long>(draw) >> 32)}; \
    unsigned int low = static_cast<unsigned int>(key);                                              \
    unsigned int high = static_cast<unsigned int>(static_cast<unsigned long long>(key) >> 32);      \
    for (int round = 0; round < 10; ++round) {                                                      \
      const unsigned long long first = 0xD2511F53ull * word[0];                                     \
      const unsigned long long second = 0xCD9E8D57ull * word[2];                                    \
      word[0] = static_cast<unsigned int>(second >> 32) ^ word[1] ^ low;                            \
      word[1] = static_cast<unsigned int>(second);                                                  \
      word[2] = static_cast<unsigned int>(first >> 32) ^ word[3] ^ high;                            \
      word[3] = static_cast<unsigned int>(first);                                                   \
      low += 0x9E3779B9u;                                                                           \
      high += 0xBB67AE85u;                                                                          \
    }                                                                                               \
    const int which = static_cast<int>(static_cast<unsigned long long>(index) % 4);                 \
    const unsigned int drawn = which == 0 ? word[0]                                                 \
                             : which == 1 ? word[1]                                                 \
                             : which == 2 ? word[2] : word[3];                                      \
    return static_cast<T>(drawn >= static_cast<unsigned int>(threshold) ? 1 : 0);                   \
  }
// clang-format on

#define PAREPROP_TEXT_OF(...) #__VA_ARGS__
#define PAREPROP_EXPANDED_TEXT_OF(...) PAREPROP_TEXT_OF(__VA_ARGS__)

namespace pareprop {
inline constexpr const char* kPhiloxName = "philox_at_least";
inline constexpr const char* kPhiloxText = PAREPROP_EXPANDED_TEXT_OF(PAREPROP_PHILOX_SOURCE);
}  // namespace pareprop
