#include "pareprop/io/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "pareprop/io/input_file.h"

namespace pareprop::io {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

template <class Word>
std::uint64_t word(const std::byte* at) {
  Word value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t sum, std::uint64_t lane) {
  return (sum ^ round(0, lane)) * kPrime1 + kPrime4;
}

}  // namespace

void Checksum::stripe(const std::byte* bytes) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i] = round(lanes_[i], word<std::uint64_t>(bytes + 8 * i));
  }
}

void Checksum::update(std::span<const std::byte> bytes) {
  length_ += bytes.size();
  if (held_ > 0) {
    const std::size_t taken = std::min(bytes.size(), kStripe - held_);
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(held_));
    held_ += taken;
    bytes = bytes.subspan(taken);
    if (held_ < kStripe) return;
    stripe(rest_.data());
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) stripe(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
  held_ = bytes.size();
}

void Checksum::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::uint64_t Checksum::value() const {
  std::uint64_t sum = kPrime5;
  if (length_ >= kStripe) {
    sum = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
          std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) sum = merge(sum, lane);
  }
  sum += length_;
  const std::byte* at = rest_.data();
  const std::byte* const end = at + held_;
  for (; end - at >= 8; at += 8) {
    sum = std::rotl(sum ^ round(0, word<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    sum = std::rotl(sum ^ (word<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) {
    sum = std::rotl(sum ^ (std::to_integer<std::uint64_t>(*at) * kPrime5), 11) * kPrime1;
  }
  sum = (sum ^ (sum >> 33)) * kPrime2;
  sum = (sum ^ (sum >> 29)) * kPrime3;
  return sum ^ (sum >> 32);
}

std::string hex(std::uint64_t checksum) {
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, checksum >>= 4) {
    *digit = "0123456789abcdef"[checksum & 15];
  }
  return text;
}

std::uint64_t file_checksum(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  Checksum sum;
  for (std::uint64_t at = 0; at < file.size();) {
    const auto piece = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), file.size() - at)));
    file.read(at, piece);
    sum.update(piece);
    at += piece.size();
  }
  return sum.value();
}

}  // namespace pareprop::io
