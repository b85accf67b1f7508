#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pareprop::io {

// The bytes of a protobuf message, a field at a time.
class ProtoMessage {
 public:
  void add_integer(int field, std::uint64_t value);
  void add_double(int field, double value);
  void add_float(int field, float value);
  // A string, or the bytes of a message.
  void add_bytes(int field, std::string_view bytes);

  const std::string& bytes() const { return bytes_; }

 private:
  void add_key(int field, unsigned wire_type);
  void add_varint(std::uint64_t value);

  std::string bytes_;
};

// As TensorFlow frames what is in its files: length, its checksum, the data, its checksum.
std::string make_record(std::string_view data);

// Bytes of the records that are whole, from the first on.
std::size_t whole_records(std::span<const std::byte> file);

}  // namespace pareprop::io
