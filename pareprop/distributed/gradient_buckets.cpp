#include "pareprop/distributed/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/reversible/taken_gradients.h"
#include "pareprop/text/units.h"

namespace pareprop::distributed {
namespace {

// Places in Shares::all(), as their gradients become final: blocks from the top of the network, the
// others after them.
struct Order {
  std::vector<std::size_t> places;
  std::size_t early = 0;  // how many are of blocks
};

Order order_of(const models::Model& model, const Shares& shares) {
  std::set<const c10::TensorImpl*> of_blocks;
  for (const at::Tensor& weight : model.block_weights()) {
    of_blocks.insert(weight.unsafeGetTensorImpl());
  }
  Order order;
  for (const bool early : {true, false}) {
    for (std::size_t i = shares.all().size(); i-- > 0;) {
      const at::Tensor& parameter = shares.all()[i].second;
      if (of_blocks.contains(parameter.unsafeGetTensorImpl()) == early) order.places.push_back(i);
    }
    if (early) order.early = order.places.size();
  }
  return order;
}

}  // namespace

GradientBuckets::GradientBuckets(const models::Model& model, Shares& shares,
                                 std::int64_t bucket_bytes)
    : model_(model), shares_(shares) {
  if (shares_.group().world() == 1) return;
  if (bucket_bytes < 1) {
    throw std::invalid_argument("gradient buckets: expected 1 or more bytes, got " +
                                std::to_string(bucket_bytes));
  }
  lay_out(bucket_bytes);
}

void GradientBuckets::lay_out(std::int64_t bucket_bytes) {
  const Order order = order_of(model_, shares_);
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> open(static_cast<std::size_t>(shares_.group().world()), kNone);
  std::vector<std::size_t> complete;  // when each bucket is
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < order.places.size(); ++i) {
    const at::Tensor& parameter = shares_.all()[order.places[i]].second;
    const int owner = shares_.owner(order.places[i]);
    const auto fits = [&](const Bucket& bucket) {
      const at::Tensor& first = bucket.parts.front().parameter;
      return first.scalar_type() == parameter.scalar_type() &&
             first.device() == parameter.device() &&
             (bucket.elements + parameter.numel()) *
                     static_cast<std::int64_t>(parameter.element_size()) <=
                 bucket_bytes;
    };
    std::size_t& own = open[static_cast<std::size_t>(owner)];
    if (own == kNone || !fits(buckets[own])) {
      own = buckets.size();
      buckets.push_back({.owner = owner});
      complete.push_back(0);
    }
    Bucket& bucket = buckets[own];
    bucket.parts.push_back(
        {.parameter = parameter, .offset = bucket.elements, .early = i < order.early});
    bucket.elements += parameter.numel();
    complete[own] = i;
  }
  std::vector<std::size_t> sent(buckets.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = i;
  std::sort(sent.begin(), sent.end(),
            [&](std::size_t a, std::size_t b) { return complete[a] < complete[b]; });
  for (const std::size_t i : sent) {
    for (std::size_t part = 0; part < buckets[i].parts.size(); ++part) {
      places_[buckets[i].parts[part].parameter.unsafeGetTensorImpl()] = {buckets_.size(), part};
    }
    buckets_.push_back(std::move(buckets[i]));
  }
}

std::function<void(const BlockGradients&)> GradientBuckets::on_block() {
  if (buckets_.empty() || takes()) return nullptr;
  return [this](const BlockGradients& block) { take(block); };
}

std::shared_ptr<GradientTaker> GradientBuckets::begin() {
  if (begun_) {
    throw std::logic_error(
        "gradient buckets: begin() was called twice without a finish() between them");
  }
  begun_ = true;
  if (!takes()) return nullptr;
  for (Bucket& bucket : buckets_) {
    for (Part& part : bucket.parts) {
      if (part.early) part.earlier = std::exchange(part.parameter.mutable_grad(), {});
    }
  }
  taker_ = std::make_shared<TakenGradients>(model_,
                                            [this](const BlockGradients& block) { take(block); });
  return taker_;
}

void GradientBuckets::take(const BlockGradients& block) {
  if (!begun_) return;  // a micro-step that is not the last
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const auto place = places_.find(block.parameters[i].unsafeGetTensorImpl());
    if (place == places_.end()) continue;
    Bucket& bucket = buckets_[place->second.bucket];
    Part& part = bucket.parts[place->second.part];
    if (!part.early && !takes()) continue;  // others get more than the block gives
    if (part.filled) {
      throw std::logic_error(
          "gradient buckets: a block gave its gradients twice; call begin() and finish() around "
          "each backward pass");
    }
    fill(bucket, part, block.gradients[i]);
    if (!part.early) continue;
    // Autograd has not added the block's gradient yet to what earlier micro-steps left.
    at::Tensor earlier = takes() ? std::exchange(part.earlier, {}) : part.parameter.grad();
    if (!earlier.defined()) continue;
    slice(bucket, part).add_(earlier);
    // It is memory of the caller's stream, which is not ordered after this one.
    if (takes() && !earlier.is_cpu()) used_.push_back(std::move(earlier));
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

bool GradientBuckets::sleeps(const Bucket& bucket) {
  return std::none_of(bucket.parts.begin(), bucket.parts.end(),
                      [](const Part& part) { return part.parameter.requires_grad(); });
}

void GradientBuckets::fill_rest() {
  for (Bucket& bucket : buckets_) {
    if (sleeps(bucket)) continue;
    for (Part& part : bucket.parts) {
      if (part.filled) continue;
      fill(bucket, part, part.earlier.defined() ? part.earlier : part.parameter.grad());
      part.earlier.reset();
    }
  }
}

// In their order: another process may have them ready in another one.
void GradientBuckets::send_filled() {
  ProcessGroup& group = shares_.group();
  for (; next_ < buckets_.size(); ++next_) {
    Bucket& bucket = buckets_[next_];
    if (sleeps(bucket)) continue;
    if (bucket.filled < bucket.parts.size()) return;
    bucket.sent_at = TraceRecorder::now();
    bucket.sending =
        takes() ? group.reduce(bucket.flat, bucket.owner) : group.all_reduce(bucket.flat);
    // One travels while the next is filled.
    while (takes() && received_ < next_) receive(received_++);
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

void GradientBuckets::receive(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (!bucket.sending) return;  // it sleeps
  bucket.sending->wait();
  record(number);
  bucket.sending.reset();
  if (takes() && bucket.owner != shares_.group().rank()) {
    bucket.flat.reset();
  } else {
    bucket.flat.div_(shares_.group().world());
  }
}

void GradientBuckets::finish() {
  if (!begun_) throw std::logic_error("gradient buckets: finish() was called without begin()");
  at::NoGradGuard no_grad;
  taker_.reset();
  fill_rest();
  send_filled();
  for (std::size_t number = 0; number < buckets_.size(); ++number) {
    if (number >= received_) receive(number);
    Bucket& bucket = buckets_[number];
    for (Part& part : bucket.parts) {
      at::Tensor& gradient = part.parameter.mutable_grad();
      if (!part.parameter.requires_grad()) {
        gradient.reset();
      } else if (takes()) {
        gradient = bucket.flat.defined() ? slice(bucket, part) : at::Tensor();
      } else if (gradient.defined()) {
        gradient.copy_(slice(bucket, part));
      } else {
        memory::TagScope tag(memory::Tag::gradients);
        gradient = slice(bucket, part).clone();
      }
      part.filled = false;
    }
    bucket.filled = 0;
    bucket.flat.reset();
  }
  used_.clear();
  next_ = received_ = 0;
  begun_ = false;
}

}  // namespace pareprop::distributed
