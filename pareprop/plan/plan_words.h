#pragma once

#include <string>

#include "pareprop/plan/planner.h"

namespace pareprop::plan {

// "8.0 GiB (8589934592 bytes)".
std::string exact_bytes(std::int64_t bytes);

// A letter a block, from the input of the network on, stacks separated by spaces: "SSSC RR". Empty
// for a plain network.
std::string policy_letters(const StepPlan& step);

// "42.0 MiB (44040192 bytes): weights 4.0 MiB (...), gradients ..., optimizer ..., activations ...,
// most of it activations". What waits beside a step, such as batches, counts as activations.
std::string parts_text(const Prediction& predicted);

// One line: what does not fit, what it takes, and what would fit; `help` says what else would.
std::string does_not_fit(const Plan& plan, const std::string& network, std::int64_t batch,
                         const std::string& help = {});

}  // namespace pareprop::plan
