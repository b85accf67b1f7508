#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pareprop/io/input_file.h"
#include "pareprop/io/safetensors_header.h"

namespace pareprop::io {

// The metadata entry that seals a file. Its value, 16 hexadecimal digits, is XXH64 (seed 0) of the
// file as it would be without the entry: the header with everything else (names, types, shapes,
// offsets, other metadata), as format_safetensors_header() writes it, followed by the bytes of all
// tensors in the order of the file.
inline constexpr const char* kSealKey = "pareprop.xxh64";

// A safetensors file, open for reading. The header is read and checked at once, whole (see
// parse_safetensors_header), the data when it is asked for. Safe to use from several threads; what
// happens to the file meanwhile is as InputFile says.
class SafetensorsFile {
 public:
  // Throws std::runtime_error whose message starts with the file's name. `within`: as InputFile
  // takes it.
  explicit SafetensorsFile(const std::filesystem::path& path,
                           const std::filesystem::path& within = {});
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  // In the order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return header_.tensors; }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  const SafetensorsEntry& entry(std::string_view name) const;

  // A new tensor on the CPU, contiguous, without gradient.
  //
  // Throws std::out_of_range for a name that is not there, std::runtime_error for BOOL data that is
  // neither 0 nor 1, and when the file cannot be read.
  at::Tensor tensor(std::string_view name) const;

  // Gives `into` the values of the tensor, converted to its type, on its device: without a copy
  // beside it where type and layout are those of the file. Throws as above, and
  // std::invalid_argument when it has another number of elements. When reading fails half-way,
  // `into` has some of them.
  void read_into(std::string_view name, const at::Tensor& into) const;

  // Reads the whole file once and compares it with its seal. Throws std::runtime_error when it is
  // not what was written, or cannot be read. A file without a seal passes.
  void verify_seal() const;

 private:
  void read_data(const SafetensorsEntry& entry, void* out) const;

  InputFile file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of header_'s names
};

at::ScalarType torch_type(SafetensorsDtype dtype);

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes the file whole or not at all (see AtomicFile), with the bytes that Python's safetensors
// gives it; `tensors` may be in any order. Tensors are written one by one from where they are: only
// one that is not contiguous, or not on the CPU, is copied first, alone. Tensors that share memory
// are each written in full.
//
// Throws std::invalid_argument for what the format cannot hold (see lay_out_safetensors; also other
// dtypes and tensors without plain data), before anything is written, and what AtomicFile throws.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata = {});

// The same with the entry kSealKey (what `metadata` has under this name is replaced), so that
// SafetensorsFile::verify_seal() finds damage. Other readers see one more entry of metadata.
void write_sealed_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                              SafetensorsMetadata metadata = {});

}  // namespace pareprop::io
