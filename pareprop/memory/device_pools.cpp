#include "pareprop/memory/device_pools.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>

namespace pareprop::memory {
namespace {

using c10::CachingAllocator::kMinBlockSize;
using c10::CachingAllocator::kMinLargeAlloc;
using c10::CachingAllocator::kRoundLarge;
using c10::CachingAllocator::kSmallBuffer;
using c10::CachingAllocator::kSmallSize;
constexpr std::size_t kLargeBuffer = std::size_t{20} << 20;

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t segment_bytes(std::size_t bytes) {
  if (bytes <= kSmallSize) return kSmallBuffer;
  return bytes < kMinLargeAlloc ? kLargeBuffer : rounded(bytes, kRoundLarge);
}

}  // namespace

struct DevicePools::Piece {
  int stream = 0;
  bool large = false;
  std::size_t segment = 0, offset = 0, bytes = 0;
  bool taken = false;
  Piece *before = nullptr, *after = nullptr;  // neighbours in the segment
};

DevicePools::Key DevicePools::key(const Piece& piece) {
  return {piece.bytes, piece.segment, piece.offset};
}

DevicePools::Free& DevicePools::pool_of(const Piece& piece) {
  return free_[{piece.stream, piece.large}];
}

DevicePools::~DevicePools() {
  for (const auto& [number, first] : segments_) {
    for (const Piece* piece = first; piece != nullptr;) {
      const Piece* const after = piece->after;
      delete piece;
      piece = after;
    }
  }
}

std::int64_t DevicePools::bytes(const Piece& piece) {
  return static_cast<std::int64_t>(piece.bytes);
}

DevicePools::Piece* DevicePools::take(int stream, std::size_t requested) {
  const std::size_t bytes = rounded(std::max<std::size_t>(requested, 1), kMinBlockSize);
  const bool large = bytes > kSmallSize;
  Free& pool = free_[{stream, large}];
  const auto found = pool.lower_bound({bytes, 0, 0});
  Piece* piece = nullptr;
  if (found != pool.end()) {
    piece = found->second;
    pool.erase(found);
  } else {
    piece = new_segment(stream, large, segment_bytes(bytes));
  }
  const std::size_t left = piece->bytes - bytes;
  if (large ? left > kSmallSize : left >= kMinBlockSize) split(*piece, bytes);
  piece->taken = true;
  usage_.allocated += static_cast<std::int64_t>(piece->bytes);
  usage_.peak_allocated = std::max(usage_.peak_allocated, usage_.allocated);
  return piece;
}

DevicePools::Piece* DevicePools::new_segment(int stream, bool large, std::size_t bytes) {
  auto* const piece =
      new Piece{.stream = stream, .large = large, .segment = next_segment_++, .bytes = bytes};
  segments_[piece->segment] = piece;
  usage_.reserved += static_cast<std::int64_t>(bytes);
  usage_.peak_reserved = std::max(usage_.peak_reserved, usage_.reserved);
  return piece;
}

void DevicePools::split(Piece& piece, std::size_t bytes) {
  auto* const rest = new Piece(piece);
  rest->offset += bytes;
  rest->bytes -= bytes;
  rest->before = &piece;
  if (rest->after != nullptr) rest->after->before = rest;
  piece.bytes = bytes;
  piece.after = rest;
  pool_of(*rest).emplace(key(*rest), rest);
}

void DevicePools::join(Piece& piece, Piece& next) {
  piece.bytes += next.bytes;
  piece.after = next.after;
  if (piece.after != nullptr) piece.after->before = &piece;
  delete &next;
}

void DevicePools::give_back(Piece* piece) {
  usage_.allocated -= static_cast<std::int64_t>(piece->bytes);
  piece->taken = false;
  Free& pool = pool_of(*piece);
  if (Piece* const after = piece->after; after != nullptr && !after->taken) {
    pool.erase(key(*after));
    join(*piece, *after);
  }
  if (Piece* const before = piece->before; before != nullptr && !before->taken) {
    pool.erase(key(*before));
    join(*before, *piece);
    piece = before;
  }
  pool.emplace(key(*piece), piece);
}

void DevicePools::empty_cache() {
  for (auto& [stream, pool] : free_) {
    std::erase_if(pool, [&](const auto& entry) {
      const Piece* const piece = entry.second;
      if (piece->before != nullptr || piece->after != nullptr) return false;
      usage_.reserved -= static_cast<std::int64_t>(piece->bytes);
      segments_.erase(piece->segment);
      delete piece;
      return true;
    });
  }
}

void DevicePools::reset_peaks() {
  usage_.peak_allocated = usage_.allocated;
  usage_.peak_reserved = usage_.reserved;
}

}  // namespace pareprop::memory
