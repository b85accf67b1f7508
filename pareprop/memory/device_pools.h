#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace pareprop::memory {

// Note [Pools of an accelerator]
// A model of torch's caching allocator for CUDA as it is unless configured: sizes only, no memory.
// Sizes are rounded up to 512 bytes. Each stream has a pool for up to 1 MiB, which takes segments
// of 2 MiB from the device, and one for more, which takes segments of 20 MiB, or from 10 MiB on of
// the size rounded up to 2 MiB. A tensor gets the smallest piece that holds it. What is left of the
// piece becomes one of its own, in the large pool only if it is more than 1 MiB: otherwise the
// tensor has it. Pieces that are given back join their free neighbours. Segments stay reserved.
// Libraries that allocate for themselves (workspaces of cuBLAS, one a stream) are not in it.
class DevicePools {
 public:
  struct Piece;  // of a segment: what a tensor has, or what is free

  DevicePools() = default;
  ~DevicePools();
  DevicePools(const DevicePools&) = delete;
  DevicePools& operator=(const DevicePools&) = delete;

  // Streams are told apart by any number.
  Piece* take(int stream, std::size_t bytes);
  void give_back(Piece* piece);
  // Segments that no tensor has a piece of go back to the device.
  void empty_cache();

  static std::int64_t bytes(const Piece& piece);

  // Bytes of all pieces that tensors have, and of all segments; now and at most since
  // reset_peaks().
  struct Usage {
    std::int64_t allocated = 0, reserved = 0;
    std::int64_t peak_allocated = 0, peak_reserved = 0;
  };
  const Usage& usage() const { return usage_; }
  void reset_peaks();

 private:
  // The smallest first, of these the one at the lowest address: segment and offset.
  using Key = std::tuple<std::size_t, std::size_t, std::size_t>;
  using Free = std::map<Key, Piece*>;
  static Key key(const Piece& piece);
  Free& pool_of(const Piece& piece);
  Piece* new_segment(int stream, bool large, std::size_t bytes);
  void split(Piece& piece, std::size_t bytes);
  void join(Piece& piece, Piece& next);

  std::map<std::pair<int, bool>, Free> free_;  // by stream, and whether it is the large pool
  std::map<std::size_t, Piece*> segments_;     // their first pieces, by number
  std::size_t next_segment_ = 0;
  Usage usage_;
};

}  // namespace pareprop::memory
