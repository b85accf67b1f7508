#pragma once

#include <string>
#include <string_view>

#include "pareprop/sweep/sweep.h"

namespace pareprop::sweep {

// A sweep written as JSON:
//     {"rounds": 5, "steps": 2, "rows": [{"models": ["vit_tiny"], "batches": [1, 4]}, ...]}
// Keys of a row: models, depths (numbers, or lists of one for each stage), image_sizes, seq_lens,
// batches, precisions, threads, modes, budgets ("200MiB", or bytes), and of the whole row plain,
// exact, seed, width, classes, vocabulary, dropout, drop_path. What is left out has the default of
// Grid. Throws std::invalid_argument that begins with `source` and names the key.
Sweep parse_sweep(std::string_view json, const std::string& source);

// Throws std::runtime_error when the file cannot be read, std::invalid_argument as above.
Sweep read_sweep(const std::string& path);

}  // namespace pareprop::sweep
