#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::io {

// The tensors of a checkpoint as of one file: of a safetensors file, or of the files that a large
// one is divided into (shards).
class TensorFiles {
 public:
  // A safetensors file, or a folder with model.safetensors or with model.safetensors.index.json and
  // the shards that it names.
  //
  // Throws std::invalid_argument for a pickle (which could run code), naming the converter; for a
  // folder that has neither; and for an index whose shards or tensors are not all there, naming
  // what is missing. Otherwise what SafetensorsFile throws.
  explicit TensorFiles(const std::filesystem::path& path);

  // Of a file that outlives this object.
  explicit TensorFiles(const SafetensorsFile& file);

  // As it was given; for messages.
  const std::filesystem::path& path() const { return path_; }
  // Where config.json and other files about the checkpoint are.
  std::filesystem::path folder() const;

  // File by file, each in the order of its data.
  const std::vector<const SafetensorsEntry*>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return places_.contains(name); }

  // As SafetensorsFile's.
  const SafetensorsEntry& entry(std::string_view name) const;
  at::Tensor tensor(std::string_view name) const;
  void read_into(std::string_view name, const at::Tensor& into) const;
  void verify_seals() const;

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  void add(std::shared_ptr<const SafetensorsFile> file);
  void open_shards(const std::filesystem::path& index);
  const Place& place(std::string_view name) const;

  std::filesystem::path path_;
  bool is_folder_ = false;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<const SafetensorsEntry*> entries_;
  std::unordered_map<std::string_view, Place> places_;  // views of the entries' names
};

}  // namespace pareprop::io
