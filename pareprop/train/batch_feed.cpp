#include "pareprop/train/batch_feed.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "pareprop/train/model_for_data.h"

namespace pareprop::train {
namespace {

template <typename Change>
data::Batch each(const data::Batch& batch, Change&& change) {
  const auto changed = [&](const at::Tensor& t) { return t.defined() ? change(t) : t; };
  return {.input = changed(batch.input),
          .target = changed(batch.target),
          .mask = changed(batch.mask),
          .scored = changed(batch.scored)};
}

}  // namespace

BatchFeed::BatchFeed(data::Prefetcher& batches, const models::Model& model, std::int64_t samples)
    : batches_(batches), model_(model), samples_(samples) {
  const c10::Device device = model.weight_options().device();
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

BatchFeed::~BatchFeed() = default;

std::int64_t BatchFeed::number() const {
  if (copied_) return copied_->part.number;
  return whole_ ? number_ : batches_.number();
}

BatchFeed::Part BatchFeed::cut() {
  if (!whole_) {
    number_ = batches_.number();
    whole_ = batches_.next();
    first_ = 0;
  }
  // Images that cannot be read are missing: the last part may be smaller.
  const std::int64_t left = whole_->input.size(0) - first_;
  const std::int64_t count = samples_ > 0 ? std::min(samples_, left) : left;
  Part part{.batch = data::samples_of(*whole_, first_, count),
            .number = number_,
            .place = {.first = first_, .samples = count},
            .last = count == left};
  first_ += count;
  if (part.last) whole_.reset();
  return part;
}

BatchFeed::Copied BatchFeed::copy() {
  const c10::StreamGuard guard(*stream_);
  const at::TensorOptions weights = model_.weight_options();
  Copied copied{
      .pinned = {}, .part = cut(), .done = std::make_shared<c10::Event>(stream_->device_type())};
  copied.pinned = each(with_scored(std::move(copied.part.batch)),
                       [](const at::Tensor& t) { return t.is_cpu() ? t.pin_memory() : t; });
  copied.part.batch = each(copied.pinned, [&](const at::Tensor& t) {
    const at::Tensor there = t.to(weights.device(), t.scalar_type(), /*non_blocking=*/true);
    return at::isFloatingType(t.scalar_type()) ? there.to(weights.dtype().toScalarType()) : there;
  });
  copied.done->record(*stream_);
  return copied;
}

BatchFeed::Part BatchFeed::next() {
  if (!stream_) {
    Part part = cut();
    part.batch = to_model(part.batch, model_);
    return part;
  }
  const Copied copied = copied_ ? *std::exchange(copied_, std::nullopt) : copy();
  const c10::impl::VirtualGuardImpl device(stream_->device_type());
  const c10::Stream reader = device.getStream(stream_->device());
  copied.done->block(reader);
  // The memory belongs to the stream of the copies, and would be given to the next batch too early.
  each(copied.part.batch, [&](const at::Tensor& t) {
    device.recordDataPtrOnStream(t.storage().data_ptr(), reader);
    return t;
  });
  return copied.part;
}

void BatchFeed::copy_ahead() {
  if (stream_ && !copied_ && (whole_ || batches_.has_next())) copied_ = copy();
}

}  // namespace pareprop::train
