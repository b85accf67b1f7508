#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pareprop/io/mapped_file.h"
#include "pareprop/io/safetensors_header.h"

namespace pareprop::io {

// A safetensors file, open for reading. The header is read and checked at once, whole (see
// parse_safetensors_header), the data where it is touched. Safe to use from several threads.
class SafetensorsFile {
 public:
  // Throws std::runtime_error whose message starts with the file's name.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }

  // In the order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return header_.tensors; }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  const SafetensorsEntry& entry(std::string_view name) const;

  // On the CPU, contiguous, without gradient. It is the mapped file itself, which stays mapped as
  // long as a tensor needs it, also after this object is gone: nothing is read yet, and no memory
  // taken. Writing to the tensor does not change the file, but it does change what another call
  // with this name returns. Where the data is not aligned for its elements, as in files that other
  // programs wrote without padding, it is a copy.
  //
  // Throws std::out_of_range for a name that is not there, std::runtime_error for BOOL data that is
  // neither 0 nor 1.
  at::Tensor tensor(std::string_view name) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of header_'s names
};

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

}  // namespace pareprop::io
