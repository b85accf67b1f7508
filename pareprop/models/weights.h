#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"
#include "pareprop/io/tensor_files.h"
#include "pareprop/models/model.h"

namespace pareprop::models {

// Which tensors of a file make one parameter.
struct NamedParts {
  std::string parameter;  // our name
  // Equal parts, joined along dimension 0. A part may have several names: any of them is read, the
  // first is written.
  std::vector<std::vector<std::string>> parts;
  // The shape of a part in the file, if it differs from ours; the number of elements is the same.
  std::vector<std::int64_t> shape = {};
};

// The names of tensors in a kind of file.
struct NameMap {
  std::vector<NamedParts> parameters;
  // Tensors that may be in the file and are not read; one * in a name stands for any characters.
  std::vector<std::string> ignored = {};
  // Tensors that may be in the file if they equal a parameter: {name, our parameter}.
  std::vector<std::pair<std::string, std::string>> copies = {};
  // Metadata of files that are written.
  io::SafetensorsMetadata metadata = {};
};

// Every parameter has its own name in the file, after `prefix`.
NameMap own_names(const Model& model, const std::string& prefix = "");

// Loads every parameter of the model from the file. Values are converted from any floating-point
// type to the type and device of the parameter. Gradients do not change.
//
// Throws std::runtime_error if a file does not match its checksum (io::SafetensorsFile), and
// std::invalid_argument if tensors are missing, not expected, of another shape, of integers, or not
// the copy that they should be; the message lists them. The network is then unchanged. Only a read
// error in the middle of the file (std::runtime_error) leaves old and new weights mixed.
void load_weights(Model& model, const io::TensorFiles& files, const NameMap& names);
void load_weights(Model& model, const io::SafetensorsFile& file, const NameMap& names);
void load_weights(Model& model, const io::SafetensorsFile& file);  // under their own names

struct AdaptOptions {
  // The classes of the network are others than those of the file: its head stays as it was made.
  bool new_head = false;
  // For each class of the network, the number that it has in the file; empty: the same.
  std::vector<std::int64_t> class_order = {};
};
struct Adapted {
  std::vector<std::string> what;  // a sentence for each kind of change
  bool new_head = false;          // the head stays as it was made
};

// The same, with parameters of other sizes adapted where that makes sense (see Adapter), and with a
// head of the network's own where the file has one for another number of classes or none. All that
// was adapted is returned. Everything else is refused as above.
Adapted load_adapted(Model& model, const io::TensorFiles& files, const NameMap& names,
                     const AdaptOptions& options = {});

// The inverse: takes tensors under our names (parameters, or their gradients) and divides, reshapes
// and renames them as the map says. Throws std::invalid_argument for a name that is not in the map.
io::NamedTensors under_names(const io::NamedTensors& ours, const NameMap& names);

// Writes a file that load_weights() reads with the same map, in the model's dtype and with a
// checksum (io::write_sealed_safetensors). `metadata` is added to the metadata of the map. Throws
// what io::write_safetensors throws.
void save_weights(const Model& model, const std::filesystem::path& path, const NameMap& names,
                  io::SafetensorsMetadata metadata = {});
void save_weights(const Model& model, const std::filesystem::path& path);  // under their own names

}  // namespace pareprop::models
