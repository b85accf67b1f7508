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

// Batches on the device of a network, in the type of its weights. For an accelerator they are
// copied from pinned memory on a stream of their own, so that the next one arrives while a step
// runs; the host never waits for a copy. On the CPU nothing is copied ahead. One caller at a time.
class BatchFeed {
 public:
  // Both outlive it.
  BatchFeed(data::Prefetcher& batches, const models::Model& model);
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  // Number of the batch that next() will give.
  std::int64_t number() const { return batches_.number() - (copied_ ? 1 : 0); }
  // Ready for the current stream of the device. Throws what Prefetcher::next() throws.
  data::Batch next();
  // Begins to copy the next batch, if there is one and it was not begun. To be called when a step
  // has been issued.
  void copy_ahead();

  // What training waited for data.
  double waited_seconds() const { return batches_.waited_seconds(); }

 private:
  struct Copied {
    data::Batch pinned;  // until the copy is used, and so done
    data::Batch batch;
    std::shared_ptr<c10::Event> done;
  };
  Copied copy();

  data::Prefetcher& batches_;
  const models::Model& model_;
  std::optional<c10::Stream> stream_;  // of the copies; none: on the CPU
  std::optional<Copied> copied_;
};

}  // namespace pareprop::train
