#include "pareprop/io/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>

#include "pareprop/io/atomic_file.h"
#include "pareprop/io/utf8.h"

namespace pareprop::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<std::pair<SafetensorsDtype, at::ScalarType>, 10> kTypes = {{
    {SafetensorsDtype::boolean, at::kBool},
    {SafetensorsDtype::u8, at::kByte},
    {SafetensorsDtype::i8, at::kChar},
    {SafetensorsDtype::i16, at::kShort},
    {SafetensorsDtype::f16, at::kHalf},
    {SafetensorsDtype::bf16, at::kBFloat16},
    {SafetensorsDtype::i32, at::kInt},
    {SafetensorsDtype::f32, at::kFloat},
    {SafetensorsDtype::f64, at::kDouble},
    {SafetensorsDtype::i64, at::kLong},
}};

at::ScalarType torch_type(SafetensorsDtype dtype) {
  return kTypes.at(static_cast<std::size_t>(dtype)).second;
}

std::optional<SafetensorsDtype> file_type(at::ScalarType type) {
  for (const auto& [dtype, torch] : kTypes) {
    if (torch == type) return dtype;
  }
  return std::nullopt;
}

// A bool in memory that is neither 0 nor 1 is undefined behaviour for all who read it.
void check_booleans(std::span<const std::byte> data, const std::string& where) {
  const auto wrong =
      std::find_if(data.begin(), data.end(), [](std::byte value) { return value > std::byte{1}; });
  if (wrong != data.end()) {
    throw std::runtime_error(where + " (BOOL): element " + std::to_string(wrong - data.begin()) +
                             " is " + std::to_string(std::to_integer<int>(*wrong)) +
                             ", expected 0 or 1");
  }
}

SafetensorsEntry describe(const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("cannot write tensor " + in_quotes(name) + ": " + why);
  };
  if (!tensor.defined()) refuse("it is undefined");
  if (tensor.layout() != at::kStrided || tensor.is_meta() || tensor.is_quantized()) {
    refuse("it is sparse, quantized or without data; convert it to a dense tensor first");
  }
  const auto dtype = file_type(tensor.scalar_type());
  if (!dtype) {
    refuse(std::string("dtype ") + at::toString(tensor.scalar_type()) +
           " is not supported; convert it first, for example to Float");
  }
  return {.name = name, .dtype = *dtype, .shape = tensor.sizes().vec()};
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(std::make_shared<const MappedFile>(path)) {
  try {
    header_ = parse_safetensors_header(file_->bytes(), file_->bytes().size());
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("cannot read '" + path.string() + "': " + error.what());
  }
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const SafetensorsEntry& each : entries()) names.push_back(each.name);
  return names;
}

bool SafetensorsFile::contains(std::string_view name) const { return index_.contains(name); }

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw std::out_of_range("'" + path_.string() + "' has no tensor " + in_quotes(name) +
                            "; it has " + std::to_string(entries().size()) + " others");
  }
  return entries()[found->second];
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry& wanted = entry(name);
  const auto data =
      file_->bytes().subspan(header_.data_begin + wanted.begin, wanted.end - wanted.begin);
  const auto options = at::TensorOptions().dtype(torch_type(wanted.dtype));
  if (data.empty()) return at::empty(wanted.shape, options);
  if (wanted.dtype == SafetensorsDtype::boolean) {
    check_booleans(data, "'" + path_.string() + "': tensor " + in_quotes(name));
  }
  if (reinterpret_cast<std::uintptr_t>(data.data()) % element_bytes(wanted.dtype) != 0) {
    at::Tensor copy = at::empty(wanted.shape, options);
    std::memcpy(copy.mutable_data_ptr(), data.data(), data.size());
    return copy;
  }
  return at::from_blob(
      data.data(), wanted.shape, [file = file_](void* /*data*/) {}, options);
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back(describe(name, tensor));
    by_name[name] = &tensor;
  }
  const SafetensorsHeader header = lay_out_safetensors(std::move(entries), metadata);

  AtomicFile file(path);
  file.write(format_safetensors_header(header));
  for (const SafetensorsEntry& entry : header.tensors) {
    // detach: copying a view of a parameter would be recorded for its gradient.
    const at::Tensor data =
        by_name.at(entry.name)->detach().to(at::kCPU).resolve_neg().contiguous();
    file.write(std::as_bytes(std::span(static_cast<const char*>(data.const_data_ptr()),
                                       static_cast<std::size_t>(entry.end - entry.begin))));
  }
  file.commit();
}

}  // namespace pareprop::io
