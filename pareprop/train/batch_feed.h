#pragma once

#include <c10/core/Stream.h>

#include <memory>
#include <optional>

#include "pareprop/data/batch.h"
#include "pareprop/data/prefetch.h"
#include "pareprop/models/model.h"

namespace c10 {
struct Event;
}

namespace pareprop::train {

// Batches on the device of a network, in the type of its weights, whole or in parts. For an
// accelerator they are copied from pinned memory on a stream of their own, so that the next one
// arrives while a step runs; the host never waits for a copy. On the CPU nothing is copied ahead.
// One caller at a time.
class BatchFeed {
 public:
  // `samples`: of a part; 0: batches are not cut. Both others outlive it.
  BatchFeed(data::Prefetcher& batches, const models::Model& model, std::int64_t samples = 0);
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  struct Part {
    data::Batch batch = {};
    std::int64_t number = 0;  // of the batch that it is a part of
    BatchPart place = {};     // in that batch
    bool last = true;         // of that batch
  };

  // Number of the batch that next() will give a part of.
  std::int64_t number() const;
  // Ready for the current stream of the device. Throws what Prefetcher::next() throws.
  Part next();
  // Begins to copy the next part, if there is one and it was not begun. To be called when a step
  // has been issued.
  void copy_ahead();

  // What training waited for data.
  double waited_seconds() const { return batches_.waited_seconds(); }

 private:
  struct Copied {
    data::Batch pinned;  // until the copy is used, and so done
    Part part;
    std::shared_ptr<c10::Event> done;
  };
  Part cut();  // where the batches are made
  Copied copy();

  data::Prefetcher& batches_;
  const models::Model& model_;
  const std::int64_t samples_;
  std::optional<data::Batch> whole_;   // that is being cut
  std::int64_t number_ = 0;            // its
  std::int64_t first_ = 0;             // sample of its next part
  std::optional<c10::Stream> stream_;  // of the copies; none: on the CPU
  std::optional<Copied> copied_;
};

}  // namespace pareprop::train
