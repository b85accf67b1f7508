#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::io {

// The types of elements that are read and written. The order is that of the reference
// implementation, which puts the tensors of a file in descending order of it.
enum class SafetensorsDtype { boolean, u8, i8, i16, f16, bf16, i32, f32, f64, i64 };

std::string_view name(SafetensorsDtype dtype);  // as in the file: "BOOL", "U8", ...
std::size_t element_bytes(SafetensorsDtype dtype);

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::f32;
  std::vector<std::int64_t> shape = {};
  // Its bytes, counted from SafetensorsHeader::data_begin.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;
  std::uint64_t data_begin = 0;  // offset in the file

  bool operator==(const SafetensorsHeader&) const = default;
};

// The limit of the reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// `file_prefix`: at least the length and the header (more is not looked at), or the whole file
// where that is shorter. Throws std::runtime_error that says what is wrong where, what was expected
// and what was found. What is returned can be relied on: the tensors follow each other without gap
// or overlap from data_begin to file_size, each with the bytes of its dtype and shape, and no size
// overflows.
//
// Note [Stricter than the reference]
// Everything that is accepted, the reference implementation (0.8.0) accepts with the same meaning.
// It takes more: names that stand twice, white space before the header, "__metadata__": null,
// fields beside dtype, shape and data_offsets, empty tensors with sizes beyond 2^63, and dtypes
// that are not among the ones above. All of these are refused here; files it writes have only the
// last.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file_prefix,
                                           std::uint64_t file_size);

// The header of a file with these tensors: puts them in order, by dtype descending, then by name,
// and sets begin and end (what is there is ignored). Throws std::invalid_argument for a name that
// stands twice, is "__metadata__" or not UTF-8, for such metadata, and for a size that is negative
// or overflows.
SafetensorsHeader lay_out_safetensors(std::vector<SafetensorsEntry> tensors,
                                      SafetensorsMetadata metadata);

// The start of the file, up to data_begin, byte for byte as the reference implementation writes it.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace pareprop::io
