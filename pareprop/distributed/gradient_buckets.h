#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pareprop/distributed/process_group.h"
#include "pareprop/models/model.h"
#include "pareprop/trace/recorder.h"

namespace pareprop::distributed {

// Makes the gradients of a network the mean of those of all processes, the same bits in each. The
// gradients of blocks of reversible stacks are sent while lower blocks are still being recovered;
// those of all other parameters after the backward pass. They travel in buckets, flattened copies
// whose order is that of the network, whatever is ready first: as much memory again as the
// gradients take, until finish().
//
// In a group of one process nothing is copied and nothing sent.
class GradientBuckets {
 public:
  static constexpr std::int64_t kBucketBytes = std::int64_t{16} << 20;

  // `model` and `group` outlive it.
  GradientBuckets(const models::Model& model, ProcessGroup& group,
                  std::int64_t bucket_bytes = kBucketBytes);

  // For StackObserver::on_block_gradients of the network's stacks; empty in a group of one process.
  // This object must outlive the stacks' backward passes.
  std::function<void(const BlockGradients&)> on_block();

  // Gets a span for every bucket, from sending it on, until another is set; null: none does.
  void set_recorder(TraceRecorder* recorder) { recorder_ = recorder; }

  // Before the backward pass whose gradients are the last to be added: that of the only, or the
  // last, micro-step. What earlier ones left in the gradients is sent with them. One forward and
  // one backward pass of the network come between begin() and finish().
  void begin();

  // After it. Every parameter that requires gradient has the mean of all processes then; one that
  // got none in this process has counted as zero. Throws what ProcessGroup throws; the gradients
  // are of no use then.
  void finish();

 private:
  struct Part {
    at::Tensor parameter;
    std::int64_t offset = 0;  // in the bucket, in elements
    bool filled = false;
  };
  struct Bucket {
    std::vector<Part> parts;
    std::int64_t elements = 0;
    std::size_t filled = 0;  // parts
    at::Tensor flat;         // while it is filled and sent
    std::unique_ptr<Pending> sending;
    double sent_at = 0.0;
  };
  struct Place {
    std::size_t bucket = 0, part = 0;
  };

  void add(const at::Tensor& parameter, std::int64_t bucket_bytes);
  void take(const BlockGradients& block);
  void fill(Bucket& bucket, Part& part, const at::Tensor& gradient);
  void send_filled();
  void record(std::size_t number) const;
  static at::Tensor slice(const Bucket& bucket, const Part& part);

  ProcessGroup& group_;
  std::vector<Bucket> buckets_;
  std::unordered_map<const c10::TensorImpl*, Place> early_;  // parameters of blocks
  std::size_t next_ = 0;                                     // bucket to be sent
  TraceRecorder* recorder_ = nullptr;
  bool begun_ = false;
};

}  // namespace pareprop::distributed
