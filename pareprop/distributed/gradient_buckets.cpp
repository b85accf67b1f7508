#include "pareprop/distributed/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "pareprop/memory/meter.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/text/units.h"

namespace pareprop::distributed {

GradientBuckets::GradientBuckets(const models::Model& model, ProcessGroup& group,
                                 std::int64_t bucket_bytes)
    : group_(group) {
  if (group_.world() == 1) return;
  if (bucket_bytes < 1) {
    throw std::invalid_argument("gradient buckets: expected 1 or more bytes, got " +
                                std::to_string(bucket_bytes));
  }
  const io::NamedTensors parameters = models::trained_parameters(model);
  std::set<const c10::TensorImpl*> of_blocks;
  for (const at::Tensor& weight : model.block_weights()) {
    of_blocks.insert(weight.unsafeGetTensorImpl());
  }
  // From the top of the network, as they become final; the others after them.
  for (const bool early : {true, false}) {
    for (auto each = parameters.rbegin(); each != parameters.rend(); ++each) {
      const at::Tensor& parameter = each->second;
      if (of_blocks.contains(parameter.unsafeGetTensorImpl()) != early) continue;
      add(parameter, bucket_bytes);
      if (!early) continue;
      early_[parameter.unsafeGetTensorImpl()] = {buckets_.size() - 1,
                                                 buckets_.back().parts.size() - 1};
    }
  }
}

void GradientBuckets::add(const at::Tensor& parameter, std::int64_t bucket_bytes) {
  const auto bytes = [](std::int64_t elements, const at::Tensor& like) {
    return elements * static_cast<std::int64_t>(like.element_size());
  };
  const auto fits = [&](const Bucket& bucket) {
    const at::Tensor& first = bucket.parts.front().parameter;
    return first.scalar_type() == parameter.scalar_type() && first.device() == parameter.device() &&
           bytes(bucket.elements + parameter.numel(), parameter) <= bucket_bytes;
  };
  if (buckets_.empty() || !fits(buckets_.back())) buckets_.emplace_back();
  Bucket& bucket = buckets_.back();
  bucket.parts.push_back({.parameter = parameter, .offset = bucket.elements});
  bucket.elements += parameter.numel();
}

std::function<void(const BlockGradients&)> GradientBuckets::on_block() {
  if (group_.world() == 1) return nullptr;
  return [this](const BlockGradients& block) { take(block); };
}

void GradientBuckets::begin() {
  if (begun_) {
    throw std::logic_error(
        "gradient buckets: begin() was called twice without a finish() between them");
  }
  begun_ = true;
}

void GradientBuckets::take(const BlockGradients& block) {
  if (!begun_) return;  // a micro-step that is not the last
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const auto place = early_.find(block.parameters[i].unsafeGetTensorImpl());
    if (place == early_.end()) continue;
    Bucket& bucket = buckets_[place->second.bucket];
    Part& part = bucket.parts[place->second.part];
    if (part.filled) {
      throw std::logic_error(
          "gradient buckets: a block gave its gradients twice; call begin() and finish() around "
          "each backward pass");
    }
    fill(bucket, part, block.gradients[i]);
    // Autograd has not added the block's gradient yet to what earlier micro-steps left.
    if (part.parameter.grad().defined()) slice(bucket, part).add_(part.parameter.grad());
  }
  send_filled();
}

at::Tensor GradientBuckets::slice(const Bucket& bucket, const Part& part) {
  return bucket.flat.narrow(0, part.offset, part.parameter.numel()).view(part.parameter.sizes());
}

void GradientBuckets::fill(Bucket& bucket, Part& part, const at::Tensor& gradient) {
  if (!bucket.flat.defined()) {
    memory::TagScope tag(memory::Tag::gradients);
    bucket.flat = at::empty({bucket.elements}, part.parameter.options().requires_grad(false));
  }
  const at::Tensor target = slice(bucket, part);
  if (gradient.defined()) {
    target.copy_(gradient);
  } else {
    target.zero_();
  }
  part.filled = true;
  ++bucket.filled;
}

// In their order: another process may have them ready in another one.
void GradientBuckets::send_filled() {
  for (; next_ < buckets_.size(); ++next_) {
    Bucket& bucket = buckets_[next_];
    if (bucket.filled < bucket.parts.size()) return;
    bucket.sent_at = TraceRecorder::now();
    bucket.sending = group_.all_reduce(bucket.flat);
  }
}

void GradientBuckets::record(std::size_t number) const {
  if (recorder_ == nullptr) return;
  const Bucket& bucket = buckets_[number];
  recorder_->add(StepKind::communication,
                 "bucket " + std::to_string(number) + ", " +
                     text::bytes_text(static_cast<double>(bucket.flat.nbytes())),
                 bucket.sent_at, bucket.sending->done_at());
}

void GradientBuckets::finish() {
  if (!begun_) throw std::logic_error("gradient buckets: finish() was called without begin()");
  at::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    for (Part& part : bucket.parts) {
      if (!part.filled) fill(bucket, part, part.parameter.grad());
    }
  }
  send_filled();
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    Bucket& bucket = buckets_[number];
    bucket.sending->wait();
    record(number);
    bucket.flat.div_(group_.world());
    for (Part& part : bucket.parts) {
      at::Tensor& gradient = part.parameter.mutable_grad();
      if (gradient.defined()) {
        gradient.copy_(slice(bucket, part));
      } else {
        memory::TagScope tag(memory::Tag::gradients);
        gradient = slice(bucket, part).clone();
      }
      part.filled = false;
    }
    bucket.filled = 0;
    bucket.flat.reset();
    bucket.sending.reset();
  }
  next_ = 0;
  begun_ = false;
}

}  // namespace pareprop::distributed
