#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pareprop/distributed/shares.h"
#include "pareprop/models/model.h"
#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/trace/recorder.h"

namespace pareprop::distributed {

// Makes the gradients of a network the mean of those of all processes, the same bits in each. The
// gradients of blocks of reversible stacks are sent while lower blocks are still being recovered;
// those of all other parameters after the backward pass. They travel in buckets, flattened copies
// of one owner's (Note [Shares]) whose order is that of the network, whatever is ready first: as
// much memory again as the gradients take, until finish().
//
// Where gradients are divided, they are taken out of the backward pass into the buckets, and the
// owner of a bucket alone gets the mean: it keeps the bucket as the gradients of its parameters.
// The others free theirs as soon as it was sent.
//
// Parameters that do not require gradient at the moment get none. In a group of one process nothing
// is copied and nothing sent.
class GradientBuckets {
 public:
  static constexpr std::int64_t kBucketBytes = Shares::kParcelBytes;

  // `model` and `shares` outlive it.
  GradientBuckets(const models::Model& model, Shares& shares,
                  std::int64_t bucket_bytes = kBucketBytes);

  // For StackObserver::on_block_gradients of the network's stacks; empty where there is nothing to
  // copy. This object must outlive the stacks' backward passes.
  std::function<void(const BlockGradients&)> on_block();

  // Gets a span for every bucket, from sending it on, until another is set; null: none does.
  void set_recorder(TraceRecorder* recorder) { recorder_ = recorder; }

  // Before the forward pass whose gradients are the last to be added: that of the only, or the
  // last, micro-step. What earlier ones left in the gradients is sent with them. One forward and
  // one backward pass of the network come between begin() and finish(). The pass must have the
  // taker that is returned; null: gradients are not divided, and nobody takes them.
  std::shared_ptr<GradientTaker> begin();

  // After it. Every parameter that requires gradient has the mean of all processes then, or, where
  // gradients are divided, every one of Shares::own(), and the others have none; a parameter that
  // got none in this process has counted as zero. Throws what ProcessGroup throws; the gradients
  // are of no use then.
  void finish();

 private:
  struct Part {
    at::Tensor parameter;
    std::int64_t offset = 0;  // in the bucket, in elements
    bool early = true;        // of a block
    bool filled = false;
    at::Tensor earlier = {};  // of micro-steps before, where the gradients of this one are taken
  };
  struct Bucket {
    int owner = 0;
    std::vector<Part> parts = {};
    std::int64_t elements = 0;
    std::size_t filled = 0;  // parts
    at::Tensor flat = {};    // while it is filled and sent
    std::unique_ptr<Pending> sending = {};
    double sent_at = 0.0;
  };
  // None of its parameters is trained at the moment: nothing is sent.
  static bool sleeps(const Bucket& bucket);
  struct Place {
    std::size_t bucket = 0, part = 0;
  };

  bool takes() const { return shares_.divides_gradients(); }
  void lay_out(std::int64_t bucket_bytes);
  void take(const BlockGradients& block);
  void fill(Bucket& bucket, Part& part, const at::Tensor& gradient);
  void fill_rest();
  void send_filled();
  void receive(std::size_t number);
  void record(std::size_t number) const;
  static at::Tensor slice(const Bucket& bucket, const Part& part);

  const models::Model& model_;
  Shares& shares_;
  std::vector<Bucket> buckets_;
  std::unordered_map<const c10::TensorImpl*, Place> places_;
  std::size_t next_ = 0;      // bucket to be sent
  std::size_t received_ = 0;  // buckets
  std::shared_ptr<GradientTaker> taker_;
  std::vector<at::Tensor> used_;  // of earlier micro-steps, on an accelerator: freed in finish()
  TraceRecorder* recorder_ = nullptr;
  bool begun_ = false;
};

}  // namespace pareprop::distributed
