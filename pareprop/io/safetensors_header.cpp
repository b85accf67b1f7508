#include "pareprop/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "pareprop/io/safetensors_json.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/utf8.h"

namespace pareprop::io {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kAlignment = 8;

struct DtypeFacts {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DtypeFacts, 10> kDtypes = {{{"BOOL", 1},
                                                 {"U8", 1},
                                                 {"I8", 1},
                                                 {"I16", 2},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"I32", 4},
                                                 {"F32", 4},
                                                 {"F64", 8},
                                                 {"I64", 8}}};

const DtypeFacts& facts(SafetensorsDtype dtype) {
  return kDtypes.at(static_cast<std::size_t>(dtype));
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

std::string bytes(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

std::string describe(const SafetensorsEntry& entry) {
  std::string text =
      "tensor " + text::in_quotes(entry.name) + " (" + std::string(name(entry.dtype)) + " [";
  constexpr std::size_t kMost = 16;
  for (std::size_t i = 0; i < std::min(entry.shape.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
  }
  return text + (entry.shape.size() > kMost ? ", ...])" : "])");
}

// Nothing when it does not fit into 63 bits. A dimension of zero does not hide others that are too
// large: strides are computed from them.
std::optional<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
  std::uint64_t strided = element_bytes(entry.dtype);
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (__builtin_mul_overflow(strided, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)),
                               &strided) ||
        strided > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return std::nullopt;
    }
  }
  return empty ? 0 : strided;
}

void check_entry(const SafetensorsEntry& entry, std::uint64_t expected_begin,
                 std::uint64_t data_bytes) {
  const std::string range =
      "data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  if (entry.end < entry.begin) fail(describe(entry) + ": " + range + " end before they begin");
  const auto expected = bytes_of(entry);
  if (!expected) fail(describe(entry) + ": its size in bytes overflows");
  if (entry.end - entry.begin != *expected) {
    fail(describe(entry) + " needs " + bytes(*expected) + ", but " + range + " are " +
         bytes(entry.end - entry.begin));
  }
  if (entry.end > data_bytes) {
    fail(describe(entry) + ": " + range + " are outside of the file, whose data has " +
         bytes(data_bytes) + ". Was it cut off?");
  }
  if (entry.begin != expected_begin) {
    fail(describe(entry) + ": " + range + " " +
         (entry.begin < expected_begin ? "overlap another tensor" : "leave a gap before them") +
         ", expected them to begin at " + std::to_string(expected_begin));
  }
}

void check_text(const std::string& text, const std::string& what) {
  const std::size_t at = text::first_ill_formed(text);
  if (at == text.size()) return;
  throw std::invalid_argument(what + " " + text::in_quotes(text) + " is not UTF-8 at byte " +
                              std::to_string(at));
}

}  // namespace

std::string_view name(SafetensorsDtype dtype) { return facts(dtype).name; }

std::size_t element_bytes(SafetensorsDtype dtype) { return facts(dtype).bytes; }

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file_prefix,
                                           std::uint64_t file_size) {
  if (file_size < kLengthBytes || file_prefix.size() < kLengthBytes) {
    fail("the file has " + bytes(file_size) +
         ", expected at least 8 for the length of the header. Is it a safetensors file?");
  }
  std::uint64_t length = 0;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file_prefix[i]) << (8 * i);
  }
  if (length > kMaxSafetensorsHeader) {
    fail("the first 8 bytes give the header " + bytes(length) + ", expected at most " +
         std::to_string(kMaxSafetensorsHeader) + ". Is it a safetensors file?");
  }
  if (length > file_size - kLengthBytes) {
    fail("the first 8 bytes give the header " + bytes(length) + ", but the file has only " +
         bytes(file_size - kLengthBytes) + " after them. Was it cut off?");
  }
  if (length > file_prefix.size() - kLengthBytes) {
    throw std::invalid_argument("parse_safetensors_header() got " + bytes(file_prefix.size()) +
                                " of the file, expected at least the whole header, " +
                                bytes(kLengthBytes + length));
  }

  const auto text = file_prefix.subspan(kLengthBytes, length);
  SafetensorsJson json =
      parse_safetensors_json({reinterpret_cast<const char*>(text.data()), text.size()});
  SafetensorsHeader header{.tensors = std::move(json.tensors),
                           .metadata = std::move(json.metadata),
                           .data_begin = kLengthBytes + length};

  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  const std::uint64_t data_bytes = file_size - header.data_begin;
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    check_entry(entry, covered, data_bytes);
    covered = entry.end;
  }
  if (covered != data_bytes) {
    fail("the last " + bytes(data_bytes - covered) +
         " of the file belong to no tensor; expected the data to end after " + bytes(covered));
  }
  return header;
}

SafetensorsHeader lay_out_safetensors(std::vector<SafetensorsEntry> tensors,
                                      SafetensorsMetadata metadata) {
  for (const auto& [key, value] : metadata) {
    check_text(key, "the metadata key");
    check_text(value, "the metadata of " + text::in_quotes(key) + ",");
  }
  for (const SafetensorsEntry& entry : tensors) {
    check_text(entry.name, "the tensor's name");
    if (entry.name == kMetadataKey) {
      throw std::invalid_argument(
          "a tensor cannot be named __metadata__, which is the name of the "
          "file's metadata; choose another name");
    }
  }

  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  std::vector<std::string_view> names;
  std::uint64_t end = 0;
  for (SafetensorsEntry& entry : tensors) {
    const auto size = bytes_of(entry);
    entry.begin = end;
    if (!size || __builtin_add_overflow(end, *size, &end)) {
      throw std::invalid_argument(describe(entry) + ": its size is negative or overflows");
    }
    entry.end = end;
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw std::invalid_argument("two tensors have the name " + text::in_quotes(*twice) +
                                "; names in a file must differ");
  }

  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  header.data_begin = format_safetensors_header(header).size();
  if (header.data_begin - kLengthBytes > kMaxSafetensorsHeader) {
    throw std::invalid_argument("the header would have " + bytes(header.data_begin) +
                                "; expected at most " + std::to_string(kMaxSafetensorsHeader) +
                                ". Use fewer or shorter names, or less metadata");
  }
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::string json = format_safetensors_json(header);
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::string length;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    length += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return length + json;
}

}  // namespace pareprop::io
