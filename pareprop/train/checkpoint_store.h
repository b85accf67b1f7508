#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/distributed/shares.h"
#include "pareprop/models/model.h"
#include "pareprop/optim/optimizer.h"
#include "pareprop/train/ema.h"
#include "pareprop/train/train_state.h"

namespace pareprop::train {

// What is trained: what a checkpoint is made of, and loaded into.
struct Trained {
  models::Model& model;
  distributed::Shares& shares;
  optim::Optimizer& optimizer;  // of shares.own()
  Ema* average = nullptr;       // null: none

  std::int64_t state_bytes() const;  // of optimizer and average
};

// A checkpoint on disk that was found whole.
struct StoredCheckpoint {
  std::filesystem::path folder;
  TrainState state;
  std::vector<std::string> optimizer = {};  // the files of its state
};

// Checkpoints of one run, each a folder "step-00001200" of weights.safetensors,
// optimizer.safetensors, ema.safetensors (where there is one) and state.json with the checksums
// of the others. A folder with such a name is always whole: it is written under another one, synced
// to the disk, and renamed. Any process may read.
//
// Where processes divide the optimizer's state (Shares::holders()), each writes its own:
// optimizer-1-of-2.safetensors, optimizer-2-of-2.safetensors. The first of them writes the rest.
class CheckpointStore {
 public:
  // Keeps the `keep` newest. Throws std::invalid_argument for less than 1.
  explicit CheckpointStore(std::filesystem::path folder, int keep = 3);

  // Writes a checkpoint of state.step, durable when this returns, then removes the oldest up to
  // that step beyond `keep`. One of the same step is replaced. Also removes what killed processes
  // left behind. Creates the folder. Is called by all holders of the state at the same time.
  //
  // Throws std::system_error that names the file and says what the system said (full disk,
  // permissions), and std::runtime_error where another holder failed. Every checkpoint from before
  // is there then, and nothing half-written.
  void save(const Trained& trained, TrainState state);

 private:
  std::filesystem::path folder_;
  int keep_;
};

struct CheckpointSearch {
  std::optional<StoredCheckpoint> newest;
  // One line a newer checkpoint that is not whole: which, and what is wrong with it.
  std::vector<std::string> skipped;
};

// The newest checkpoint in `folder` whose files all have the size and checksum that were written.
// None where the folder does not exist or is empty.
CheckpointSearch newest_whole(const std::filesystem::path& folder);

// One checkpoint, verified. Throws std::runtime_error that says what is wrong with it.
StoredCheckpoint open_checkpoint(const std::filesystem::path& folder);

// Gives model, optimizer and average the tensors of the checkpoint. An average that the checkpoint
// does not have starts from its weights. Throws std::invalid_argument that lists what does not fit;
// of the three, those before it are loaded then.
void load(const StoredCheckpoint& checkpoint, const Trained& trained);

}  // namespace pareprop::train
