#include "pareprop/io/event_record.h"

#include <bit>
#include <cstring>

#include "pareprop/io/crc32c.h"

namespace pareprop::io {
namespace {

constexpr unsigned kVarint = 0;
constexpr unsigned kEightBytes = 1;
constexpr unsigned kSized = 2;
constexpr unsigned kFourBytes = 5;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kCheckBytes = 4;
constexpr std::size_t kHeadBytes = kLengthBytes + kCheckBytes;

// Least significant byte first.
template <class Number>
void append_number(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    to += static_cast<char>(number >> (8 * i) & 0xff);
  }
}

template <class Number>
Number number_at(std::span<const std::byte> bytes) {
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) {
    number = number << 8 | static_cast<Number>(bytes[i]);
  }
  return number;
}

// A checksum of data that holds checksums is weak, so the format turns and shifts them.
std::uint32_t masked_check(std::span<const std::byte> bytes) {
  constexpr std::uint32_t kDelta = 0xa282ead8;
  return std::rotr(crc32c(bytes), 15) + kDelta;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

void ProtoMessage::add_key(int field, unsigned wire_type) {
  add_varint(static_cast<std::uint64_t>(field) << 3 | wire_type);
}

void ProtoMessage::add_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtoMessage::add_integer(int field, std::uint64_t value) {
  add_key(field, kVarint);
  add_varint(value);
}

void ProtoMessage::add_double(int field, double value) {
  add_key(field, kEightBytes);
  append_number(bytes_, std::bit_cast<std::uint64_t>(value));
}

void ProtoMessage::add_float(int field, float value) {
  add_key(field, kFourBytes);
  append_number(bytes_, std::bit_cast<std::uint32_t>(value));
}

void ProtoMessage::add_bytes(int field, std::string_view bytes) {
  add_key(field, kSized);
  add_varint(bytes.size());
  bytes_ += bytes;
}

std::string make_record(std::string_view data) {
  std::string record;
  append_number(record, std::uint64_t{data.size()});
  append_number(record, masked_check(bytes_of(record)));
  record += data;
  append_number(record, masked_check(bytes_of(data)));
  return record;
}

std::size_t whole_records(std::span<const std::byte> file) {
  std::size_t whole = 0;
  for (;;) {
    const std::span<const std::byte> rest = file.subspan(whole);
    if (rest.size() < kHeadBytes + kCheckBytes) return whole;
    const auto length = number_at<std::uint64_t>(rest);
    const auto check = number_at<std::uint32_t>(rest.subspan(kLengthBytes));
    if (check != masked_check(rest.first(kLengthBytes))) return whole;
    if (length > rest.size() - kHeadBytes - kCheckBytes) return whole;
    const auto data = rest.subspan(kHeadBytes, length);
    const auto data_check = number_at<std::uint32_t>(rest.subspan(kHeadBytes + length));
    if (data_check != masked_check(data)) return whole;
    whole += kHeadBytes + length + kCheckBytes;
  }
}

}  // namespace pareprop::io
