#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pareprop/io/tensor_files.h"
#include "pareprop/models/weights.h"

namespace pareprop::models {

// Which names of a file one of our names has. In ours # stands for a number and * for the rest; in
// theirs, the same ones take their places, and ^ is the number plus one.
struct Rule {
  std::string ours;
  // The parts that ours is joined of; each by the name that is written, then by others.
  std::vector<std::vector<std::string>> theirs;
};
using Rules = std::vector<Rule>;

Rule same(std::string ours, std::string theirs);
Rule either(std::string ours, std::string written, std::string other);

// The names of a kind of file, for one family of networks.
struct Naming {
  Rules rules;
  std::vector<std::string> ignored = {};                         // NameMap::ignored
  std::vector<std::pair<std::string, std::string>> copies = {};  // NameMap::copies
};

// Those of each parameter of the model. Throws std::logic_error where there is no rule.
NameMap names_of(const Model& model, const Naming& naming);

// Shapes of a file's tensors under our names; of parts that are joined, the shape of the whole.
// Names that no rule knows are left out.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;
Shapes shapes_under_own_names(const io::TensorFiles& files, const Naming& naming);
// Of a file that has our names already.
Shapes shapes_of(const io::TensorFiles& files);

}  // namespace pareprop::models
