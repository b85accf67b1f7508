#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::io {

// Scalars for TensorBoard: FOLDER/events.out.tfevents.pareprop, to which every run in the folder
// appends. Each call is on its way to the disk when it returns, and a reader sees it.
//
// A record that a killed run left half-written would hide all that follow from TensorBoard, so it
// is cut off when the file is opened; a damaged one too, with all after it, which no reader
// reaches. One process at a time writes.
//
// Errors are std::system_error that names the file, std::runtime_error when what is there is no
// event file (it is left alone), and std::invalid_argument for a negative step or an empty name.
class EventFile {
 public:
  struct Scalar {
    std::string_view name;  // UTF-8, groups by '/': "train/loss"
    float value;
  };

  // Makes the folder where it is missing.
  explicit EventFile(const std::filesystem::path& folder);

  void add(std::int64_t step, std::span<const Scalar> scalars);
  void add(std::int64_t step, std::initializer_list<Scalar> scalars) {
    add(step, std::span(scalars.begin(), scalars.size()));
  }

  // Training goes on from a checkpoint: TensorBoard drops what it has from this step on.
  void restart_at(std::int64_t step);

  const std::filesystem::path& path() const { return path_; }

 private:
  void open();
  void append(const std::string& event);

  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace pareprop::io
