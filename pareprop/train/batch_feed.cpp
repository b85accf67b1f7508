#include "pareprop/train/batch_feed.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

BatchFeed::BatchFeed(data::Prefetcher& batches, const models::Model& model)
    : batches_(batches), model_(model) {
  const c10::Device device = model.weight_options().device();
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

BatchFeed::~BatchFeed() = default;

BatchFeed::Copied BatchFeed::copy() {
  const c10::StreamGuard guard(*stream_);
  const at::TensorOptions weights = model_.weight_options();
  Copied copied{.pinned = each(with_scored(batches_.next()),
                               [](const at::Tensor& t) { return t.is_cpu() ? t.pin_memory() : t; }),
                .batch = {},
                .done = std::make_shared<c10::Event>(stream_->device_type())};
  copied.batch = each(copied.pinned, [&](const at::Tensor& t) {
    const at::Tensor there = t.to(weights.device(), t.scalar_type(), /*non_blocking=*/true);
    return at::isFloatingType(t.scalar_type()) ? there.to(weights.dtype().toScalarType()) : there;
  });
  copied.done->record(*stream_);
  return copied;
}

data::Batch BatchFeed::next() {
  if (!stream_) return to_model(batches_.next(), model_);
  const Copied copied = copied_ ? *std::exchange(copied_, std::nullopt) : copy();
  const c10::impl::VirtualGuardImpl device(stream_->device_type());
  const c10::Stream reader = device.getStream(stream_->device());
  copied.done->block(reader);
  // The memory belongs to the stream of the copies, and would be given to the next batch too early.
  each(copied.batch, [&](const at::Tensor& t) {
    device.recordDataPtrOnStream(t.storage().data_ptr(), reader);
    return t;
  });
  return copied.batch;
}

void BatchFeed::copy_ahead() {
  if (stream_ && !copied_ && batches_.has_next()) copied_ = copy();
}

}  // namespace pareprop::train
