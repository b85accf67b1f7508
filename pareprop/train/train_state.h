#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop::train {

struct LossPoint {
  std::int64_t step = 0;
  double loss = 0.0;
};

// How many came after the one with the lowest loss; one that is not a number is never the lowest.
std::int64_t since_best(const std::vector<LossPoint>& losses);

// Where a run is, besides its tensors. All randomness is a function of the seed and of numbers that
// are here, so nothing else has to be kept to go on with the same bits.
struct TrainState {
  std::int64_t step = 0;           // steps that are done
  std::int64_t data_position = 0;  // the number of the next batch
  std::uint64_t seed = 0;
  int world = 1;                                     // processes that trained together
  std::int64_t parts = 1;                            // that a batch was computed in
  double seconds = 0.0;                              // of training, before and after restarts
  std::string config = {};                           // the run's configuration, as text
  std::vector<LossPoint> losses = {};                // as far as the caller wants to remember them
  std::map<std::string, std::string> versions = {};  // of the programs; made by whoever writes it
};

struct FileSeal {
  std::uint64_t size = 0;
  std::string checksum = {};
};

// What state.json of a checkpoint says.
struct Manifest {
  TrainState state;
  std::map<std::string, FileSeal> files;  // by name, beside it
};

// JSON that holds a checksum of itself. Throws std::invalid_argument for text that is not UTF-8.
std::string format_manifest(const Manifest& manifest);

// Throws std::runtime_error that says what is wrong: not JSON, damaged, or of a later format.
Manifest parse_manifest(std::string_view text);

}  // namespace pareprop::train
