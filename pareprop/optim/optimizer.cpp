#include "pareprop/optim/optimizer.h"

#include <array>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pareprop/models/named_tensors.h"

namespace pareprop::optim {
namespace {

// Whose state has tensors with such names. The first that fits counts: with state in 8 bits, that
// of small parameters is fp32.
struct StateName {
  std::string_view begins;
  const char* whose;
};
constexpr std::array kStateNames{
    StateName{"exp_avg_8bit.", "AdamW with state in 8bit"},
    StateName{"exp_avg_bf16.", "AdamW with state in bf16"},
    StateName{"exp_avg.", "AdamW with state in fp32"},
    StateName{"momentum_8bit.", "SGD with state in 8bit"},
    StateName{"momentum_bf16.", "SGD with state in bf16"},
    StateName{"momentum.", "SGD with state in fp32"},
    StateName{"square_rows.", "Adafactor"},
    StateName{"square.", "Adafactor"},
};

// "NAME" of "exp_avg.NAME".
std::string parameter_of(const std::string& state_name) {
  return state_name.substr(state_name.find('.') + 1);
}

std::string whose_state(const std::set<std::string>& names) {
  for (const StateName& known : kStateNames) {
    for (const std::string& name : names) {
      if (name.starts_with(known.begins)) return known.whose;
    }
  }
  return "SGD without momentum";
}

}  // namespace

Optimizer::Optimizer(io::NamedTensors parameters) : parameters_(std::move(parameters)) {}

void Optimizer::step(double learning_rate, double gradient_factor) {
  std::vector<std::size_t> all(parameters_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  update(all, learning_rate, gradient_factor);
}

void Optimizer::load_state(c10::ArrayRef<io::SafetensorsFile> files) {
  const io::NamedTensors own = state();
  std::set<std::string> own_parameters, there_names, there_of_own, here_names;
  for (const auto& [name, parameter] : parameters_) own_parameters.insert(name);
  for (const auto& [name, tensor] : own) here_names.insert(name);
  for (const io::SafetensorsFile& file : files) {
    for (const std::string& name : file.names()) {
      there_names.insert(name);
      if (own_parameters.contains(parameter_of(name))) there_of_own.insert(name);
    }
  }
  const std::string there = whose_state(there_names), here = whose_state(here_names);
  // Those of some parameters may all be small, and then of another kind than those of all.
  const bool fits = there_of_own == here_names;
  if (there != here && !fits) {
    throw std::invalid_argument(files.front().path().string() + " is the state of " + there +
                                ", expected that of " + here +
                                ": train on with what it was trained with, or start another run "
                                "from the weights");
  }
  models::copy_named(files, own, "the optimizer's state", [&](const std::string& name) {
    return own_parameters.contains(parameter_of(name));
  });
}

}  // namespace pareprop::optim
