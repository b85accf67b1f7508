#include "pareprop/distributed/shares.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

namespace pareprop::distributed {

std::vector<int> owners_of(c10::ArrayRef<at::Tensor> parameters, int processes) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].nbytes() > parameters[b].nbytes();
  });
  std::vector<int> owners(parameters.size());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(processes));
  for (const std::size_t i : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += parameters[i].nbytes();
    owners[i] = static_cast<int>(least - bytes.begin());
  }
  return owners;
}

std::vector<at::Tensor> share_of(c10::ArrayRef<at::Tensor> parameters, int rank, int processes) {
  const std::vector<int> owners = owners_of(parameters, processes);
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (owners[i] == rank) own.push_back(parameters[i]);
  }
  return own;
}

struct Shares::Travelling {
  const Parcel* parcel;
  bool in_place = false;  // `flat` is the parameter itself
  at::Tensor flat;
  std::unique_ptr<Pending> pending;
};

Shares::Shares(io::NamedTensors parameters, ProcessGroup& group, Shard shard)
    : all_(std::move(parameters)),
      group_(group),
      shard_(group.world() > 1 ? shard : Shard::none),
      alone_(shard_ == Shard::none ? one_process() : nullptr) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : all_) tensors.push_back(parameter);
  owners_ = owners_of(tensors, group_.world());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_own = holds_all() || owners_[i] == group_.rank();
    places_in_own_.push_back(is_own ? own_.size() : kNotOwn);
    if (is_own) own_.push_back(all_[i]);
  }
  if (!holds_all()) pack();
}

void Shares::pack() {
  for (int owner = 0; owner < group_.world(); ++owner) {
    Parcel parcel{.owner = owner};
    const auto close = [&] {
      if (!parcel.parameters.empty()) parcels_.push_back(std::exchange(parcel, {.owner = owner}));
    };
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const at::Tensor& parameter = all_[i].second;
      if (owners_[i] != owner) continue;
      const auto size = static_cast<std::int64_t>(parameter.element_size());
      const bool joins = !parcel.parameters.empty() &&
                         parcel.parameters.front().scalar_type() == parameter.scalar_type() &&
                         (parcel.elements + parameter.numel()) * size <= kParcelBytes;
      if (!joins) close();
      parcel.parameters.push_back(parameter);
      parcel.elements += parameter.numel();
    }
    close();
  }
}

std::vector<double> Shares::joined(c10::ArrayRef<double> of_own) const {
  const at::Tensor numbers = at::zeros({static_cast<std::int64_t>(all_.size())}, at::kDouble);
  auto* const values = numbers.mutable_data_ptr<double>();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (places_in_own_[i] != kNotOwn) values[i] = of_own[places_in_own_[i]];
  }
  // The others add zeros.
  holders().all_reduce(numbers)->wait();
  return {values, values + all_.size()};
}

Shares::Travelling Shares::send(const Parcel& parcel) const {
  const at::Tensor& first = parcel.parameters.front();
  Travelling next{.parcel = &parcel,
                  .in_place = parcel.parameters.size() == 1 && first.is_contiguous(),
                  .flat = {},
                  .pending = nullptr};
  if (next.in_place) {
    next.flat = first.detach();
  } else if (parcel.owner == group_.rank()) {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& parameter : parcel.parameters) {
      rows.push_back(parameter.detach().reshape(-1));
    }
    next.flat = at::cat(rows);
  } else {
    next.flat = at::empty({parcel.elements}, first.options().requires_grad(false));
  }
  next.pending = group_.broadcast(next.flat, parcel.owner);
  return next;
}

void Shares::receive(Travelling travelling) const {
  travelling.pending->wait();
  const Parcel& parcel = *travelling.parcel;
  if (parcel.owner == group_.rank()) return;
  if (travelling.in_place) {
    parcel.parameters.front().unsafeGetTensorImpl()->bump_version();
    return;
  }
  std::int64_t begin = 0;
  for (const at::Tensor& parameter : parcel.parameters) {
    parameter.copy_(travelling.flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
}

void Shares::gather_weights(TraceRecorder* recorder) {
  if (parcels_.empty()) return;
  at::NoGradGuard no_grad;
  const TraceScope scope(recorder, StepKind::communication, "weights from their owners");
  constexpr std::size_t kAhead = 2;  // one is copied while the next travels
  std::deque<Travelling> travelling;
  for (const Parcel& parcel : parcels_) {
    travelling.push_back(send(parcel));
    if (travelling.size() < kAhead) continue;
    receive(std::move(travelling.front()));
    travelling.pop_front();
  }
  while (!travelling.empty()) {
    receive(std::move(travelling.front()));
    travelling.pop_front();
  }
}

}  // namespace pareprop::distributed
