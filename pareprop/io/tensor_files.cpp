#include "pareprop/io/tensor_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "pareprop/io/input_file.h"
#include "pareprop/io/json.h"
#include "pareprop/io/misfits.h"
#include "pareprop/text/escape.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickles[] = {".bin", ".pt", ".pth", ".pyth", ".ckpt", ".pkl"};

bool is_pickle_by_name(const fs::path& path) {
  return std::find(std::begin(kPickles), std::end(kPickles), path.extension()) !=
         std::end(kPickles);
}

// torch.save() writes a zip file or, before torch 1.6, a bare pickle of protocol 2 or later. The
// first eight bytes of a safetensors file are the length of its header, of which the upper four are
// zero: it cannot be either.
bool is_pickle_by_content(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  const InputFile file(path);
  std::array<std::byte, 8> begin{};
  if (file.size() < begin.size()) return false;
  file.read(0, begin);
  const auto at = [&](std::size_t i) { return std::to_integer<int>(begin[i]); };
  const bool zip = at(0) == 'P' && at(1) == 'K' && at(2) == 3 && at(3) == 4;
  const bool long_header = at(4) + at(5) + at(6) + at(7) > 0;
  return zip || (at(0) == 0x80 && at(1) >= 2 && at(1) <= 5 && long_header);
}

std::invalid_argument pickle(const fs::path& path) {
  return std::invalid_argument(
      path.string() +
      " is a pickle, which could run code when it is opened; convert it once with "
      "'python -m pareprop.convert_pickle FILE OUT.safetensors' (or convert_pickle.py, in "
      "share/pareprop of an installation and in tools of the sources), and give the file that it "
      "writes");
}

// The pickle that a folder has instead of what is looked for; empty: none.
fs::path pickle_in(const fs::path& folder) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_pickle_by_name(entry.path())) return entry.path();
  }
  return {};
}

}  // namespace

TensorFiles::TensorFiles(const fs::path& path) : path_(path) {
  std::error_code ignored;
  is_folder_ = fs::is_directory(path, ignored);
  if (!is_folder_) {
    if (is_pickle_by_name(path) || is_pickle_by_content(path)) throw pickle(path);
    add(std::make_shared<SafetensorsFile>(path));
    return;
  }
  if (fs::exists(path / kWhole)) {
    add(std::make_shared<SafetensorsFile>(path / kWhole));
  } else if (fs::exists(path / kIndex)) {
    open_shards(path / kIndex);
  } else if (const fs::path found = pickle_in(path); !found.empty()) {
    throw pickle(found);
  } else {
    throw std::invalid_argument(path.string() + " is a folder without weights; expected " + kWhole +
                                " or " + kIndex + " in it");
  }
}

TensorFiles::TensorFiles(const SafetensorsFile& file) : path_(file.path()) {
  add(std::shared_ptr<const SafetensorsFile>(std::shared_ptr<void>(), &file));
}

fs::path TensorFiles::folder() const { return is_folder_ ? path_ : path_.parent_path(); }

void TensorFiles::add(std::shared_ptr<const SafetensorsFile> file) {
  for (const SafetensorsEntry& entry : file->entries()) {
    entries_.push_back(&entry);
    places_.try_emplace(entry.name, Place{file.get(), &entry});
  }
  files_.push_back(std::move(file));
}

void TensorFiles::open_shards(const fs::path& index) {
  std::map<std::string, std::string> shard_of;
  try {
    const auto json = parse_json(read_text_file(index), index.string());
    shard_of = json.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(index.string() + ": " + json_fault(error) +
                                "; expected \"weight_map\": names of tensors and of their files");
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  Misfits misfits;
  std::set<std::string> absent;
  for (const std::string& shard : shards) {
    // A name with folders in it could lead anywhere.
    if (fs::path(shard).filename() != shard || !fs::exists(path_ / shard)) {
      absent.insert(shard);
      misfits.add(Misfits::Kind::missing, "the file " + text::in_quotes(shard) + " is missing");
    } else {
      add(std::make_shared<SafetensorsFile>(path_ / shard));
    }
  }
  for (const auto& [name, shard] : shard_of) {
    if (absent.contains(shard) || contains(name)) continue;
    misfits.add(Misfits::Kind::missing,
                text::printable(name) + " is missing in " + text::printable(shard));
  }
  if (misfits.empty()) return;
  throw std::invalid_argument(index.string() + " names what is not there; nothing was loaded" +
                              misfits.text());
}

const TensorFiles::Place& TensorFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw std::out_of_range(path_.string() + " has no tensor " + text::in_quotes(name));
  }
  return found->second;
}

const SafetensorsEntry& TensorFiles::entry(std::string_view name) const {
  return *place(name).entry;
}
at::Tensor TensorFiles::tensor(std::string_view name) const {
  return place(name).file->tensor(name);
}
void TensorFiles::read_into(std::string_view name, const at::Tensor& into) const {
  place(name).file->read_into(name, into);
}
void TensorFiles::verify_seals() const {
  for (const auto& file : files_) file->verify_seal();
}

}  // namespace pareprop::io
