#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "pareprop/io/tensor_files.h"
#include "pareprop/models/architecture.h"
#include "pareprop/models/weights.h"

namespace pareprop::models {

// Whose names the tensors of a checkpoint have.
enum class NamesOf { pareprop, hugging_face, timm };
std::string_view title(NamesOf names);  // "Hugging Face"

// Weights that pareprop, Hugging Face transformers or timm saved, recognised by the names of their
// tensors; what network they are of, by config.json beside them and by their shapes. Of the weights
// only headers are read before load().
class Pretrained {
 public:
  // A safetensors file, or a folder as io::TensorFiles takes it.
  //
  // Throws what io::TensorFiles throws, and std::invalid_argument for names that nobody here knows,
  // an architecture that is not supported, and a config.json that contradicts the weights.
  explicit Pretrained(const std::filesystem::path& path);

  const io::TensorFiles& files() const { return files_; }
  NamesOf names() const { return names_; }
  // None: weights with our names, of a size that has no name; --model and the sizes say it.
  const std::optional<Architecture>& architecture() const { return architecture_; }
  // What is taken for granted because no file tells it, for the user; empty: nothing.
  const std::string& assumed() const { return assumed_; }
  // Sizes that follow from the shapes if the network is `model` with patches of this side; none: it
  // is of another family.
  std::optional<Overrides> sizes_as(const std::string& model,
                                    std::optional<std::int64_t> patch) const {
    return models::sizes_as(told_, model, patch);
  }
  bool has_head() const { return told_.has_head; }
  // The number of heads is not known: shapes do not tell it.
  bool needs_heads() const { return needs_heads_; }

  // Loads them into a network of that architecture, or of one that differs in what can be adapted.
  // Throws what load_adapted() throws.
  Adapted load(Model& model, const AdaptOptions& options = {}) const;

 private:
  void recognise();
  void read_architecture();
  Architecture by_shapes(const Base& base);

  io::TensorFiles files_;
  NamesOf names_ = NamesOf::pareprop;
  std::string type_;              // of Hugging Face's models
  std::optional<Naming> naming_;  // none: ours
  Told told_;
  std::optional<Architecture> architecture_;
  std::string assumed_;
  bool needs_heads_ = false;
};

}  // namespace pareprop::models
