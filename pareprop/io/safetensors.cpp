#include "pareprop/io/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>
#include <stdexcept>

#include "pareprop/io/atomic_file.h"
#include "pareprop/io/checksum.h"
#include "pareprop/text/escape.h"

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
    throw std::invalid_argument("cannot write tensor " + text::in_quotes(name) + ": " + why);
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

// Length and header, as far as they are there.
std::vector<std::byte> read_start(const InputFile& file) {
  constexpr std::uint64_t kLengthBytes = 8;
  std::vector<std::byte> start(
      static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kLengthBytes)));
  file.read(0, start);
  std::uint64_t length = 0;
  for (std::size_t i = start.size(); i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(start[i]);
  }
  if (length <= std::min(kMaxSafetensorsHeader, file.size() - start.size())) {
    start.resize(start.size() + static_cast<std::size_t>(length));
    file.read(0, start);
  }
  return start;
}

// See kSealKey. `for_each_piece(entry, take)` gives the bytes of a tensor, in pieces.
template <class ForEachPiece>
std::string seal_of(SafetensorsHeader header, ForEachPiece&& for_each_piece) {
  header.metadata.erase(kSealKey);
  Checksum sum;
  sum.update(format_safetensors_header(header));
  for (const SafetensorsEntry& entry : header.tensors) {
    for_each_piece(entry, [&](std::span<const std::byte> piece) { sum.update(piece); });
  }
  return hex(sum.value());
}

// What is to be written, in the order of the file.
class Layout {
 public:
  Layout(const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back(describe(name, tensor));
      by_name_[name] = &tensor;
    }
    header_ = lay_out_safetensors(std::move(entries), metadata);
  }

  const SafetensorsHeader& header() const { return header_; }

  template <class Take>
  void with_data(const SafetensorsEntry& entry, Take&& take) const {
    // detach: copying a view of a parameter would be recorded for its gradient.
    const at::Tensor data =
        by_name_.at(entry.name)->detach().to(at::kCPU).resolve_neg().contiguous();
    take(std::as_bytes(std::span(static_cast<const char*>(data.const_data_ptr()),
                                 static_cast<std::size_t>(entry.end - entry.begin))));
  }

 private:
  std::unordered_map<std::string_view, const at::Tensor*> by_name_;
  SafetensorsHeader header_;
};

}  // namespace

at::ScalarType torch_type(SafetensorsDtype dtype) {
  return kTypes.at(static_cast<std::size_t>(dtype)).second;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path,
                                 const std::filesystem::path& within)
    : file_(path, within) {
  const std::vector<std::byte> start = read_start(file_);
  try {
    header_ = parse_safetensors_header(start, file_.size());
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
    throw std::out_of_range("'" + path().string() + "' has no tensor " + text::in_quotes(name) +
                            "; it has " + std::to_string(entries().size()) + " others");
  }
  return entries()[found->second];
}

void SafetensorsFile::read_data(const SafetensorsEntry& wanted, void* out) const {
  const std::span bytes(static_cast<std::byte*>(out),
                        static_cast<std::size_t>(wanted.end - wanted.begin));
  file_.read(header_.data_begin + wanted.begin, bytes);
  if (wanted.dtype == SafetensorsDtype::boolean) {
    check_booleans(bytes, "'" + path().string() + "': tensor " + text::in_quotes(wanted.name));
  }
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry& wanted = entry(name);
  at::Tensor result = at::empty(wanted.shape, at::TensorOptions().dtype(torch_type(wanted.dtype)));
  if (wanted.end > wanted.begin) read_data(wanted, result.mutable_data_ptr());
  return result;
}

void SafetensorsFile::read_into(std::string_view name, const at::Tensor& into) const {
  const SafetensorsEntry& wanted = entry(name);
  const at::ScalarType type = torch_type(wanted.dtype);
  const auto elements =
      static_cast<std::int64_t>((wanted.end - wanted.begin) / element_bytes(wanted.dtype));
  if (elements != into.numel()) {
    throw std::invalid_argument("'" + path().string() + "': tensor " + text::in_quotes(name) +
                                " has " + std::to_string(elements) + " elements, expected " +
                                std::to_string(into.numel()));
  }
  // Booleans are checked before anybody's memory holds them.
  const bool as_it_lies = into.is_cpu() && into.is_contiguous() && !into.is_neg() &&
                          into.scalar_type() == type && type != at::kBool;
  if (!as_it_lies) {
    into.copy_(tensor(name).view(into.sizes()));
  } else if (elements > 0) {
    read_data(wanted, into.mutable_data_ptr());
    into.unsafeGetTensorImpl()->bump_version();
  }
}

void SafetensorsFile::verify_seal() const {
  const auto seal = metadata().find(kSealKey);
  if (seal == metadata().end()) return;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  const auto pieces = [&](const SafetensorsEntry& entry, const auto& take) {
    for (std::uint64_t at = entry.begin; at < entry.end;) {
      const auto piece = std::span(buffer).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), entry.end - at)));
      file_.read(header_.data_begin + at, piece);
      take(piece);
      at += piece.size();
    }
  };
  if (seal_of(header_, pieces) == seal->second) return;
  throw std::runtime_error(
      "cannot read '" + path().string() +
      "': the file is damaged: its content does not match its checksum, the entry " + kSealKey +
      " of its metadata. A program that changes the file on purpose must remove this entry");
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata) {
  const Layout layout(tensors, metadata);
  AtomicFile file(path);
  file.write(format_safetensors_header(layout.header()));
  for (const SafetensorsEntry& entry : layout.header().tensors) {
    layout.with_data(entry, [&](std::span<const std::byte> data) { file.write(data); });
  }
  file.commit();
}

void write_sealed_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                              SafetensorsMetadata metadata) {
  metadata.erase(kSealKey);
  const Layout layout(tensors, metadata);
  metadata[kSealKey] = seal_of(
      layout.header(),
      [&](const SafetensorsEntry& entry, const auto& take) { layout.with_data(entry, take); });
  write_safetensors(path, tensors, metadata);
}

}  // namespace pareprop::io
