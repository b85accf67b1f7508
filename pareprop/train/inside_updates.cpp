#include "pareprop/train/inside_updates.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/text/units.h"
#include "pareprop/train/gradient_norm.h"

namespace pareprop::train {

InsideUpdates::InsideUpdates(const Network& network, optim::Optimizer& optimizer,
                             distributed::Shares& shares)
    : optimizer_(optimizer), shares_(shares) {
  const io::NamedTensors& parameters = shares_.all();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    places_[parameters[i].second.unsafeGetTensorImpl()] = i;
  }
  taker_ = std::make_shared<TakenGradients>(network,
                                            [this](const BlockGradients& block) { take(block); });
}

void InsideUpdates::begin(TraceRecorder* recorder) {
  recorder_ = recorder;
  changed_ = false;
  finite_ = true;
  travelling_.clear();
  outside_.clear();
  squares_.assign(shares_.own().size(), 0.0);
  norms_.clear();
  norm_places_.clear();
}

void InsideUpdates::begin_measuring(TraceRecorder* recorder) {
  begin(recorder);
  measuring_ = true;
}

void InsideUpdates::begin_stepping(double learning_rate, double gradient_factor,
                                   TraceRecorder* recorder) {
  begin(recorder);
  measuring_ = false;
  learning_rate_ = learning_rate;
  gradient_factor_ = gradient_factor;
}

void InsideUpdates::take(const BlockGradients& block) {
  at::NoGradGuard no_grad;
  Gradients own;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    own.places.push_back(places_.at(block.parameters[i].unsafeGetTensorImpl()));
    own.gradients.push_back(block.gradients[i]);
  }
  if (own.places.empty()) return;
  if (shares_.group().world() == 1) return use(own);
  if (block.block == TakenGradients::kOutside) {
    outside_.push_back(std::move(own));
    return;
  }
  const std::size_t before = travelling_.size();
  send(own);
  for (std::size_t i = 0; i < before; ++i) receive_first();
}

void InsideUpdates::send(const Gradients& of_block) {
  for (int owner = 0; owner < shares_.group().world(); ++owner) {
    Gradients own;
    for (std::size_t i = 0; i < of_block.places.size(); ++i) {
      if (shares_.owner(of_block.places[i]) != owner) continue;
      own.places.push_back(of_block.places[i]);
      own.gradients.push_back(of_block.gradients[i]);
    }
    if (!own.places.empty()) send_to(owner, std::move(own));
  }
}

void InsideUpdates::send_to(int owner, Gradients gradients) {
  Travelling next;
  next.owner = owner;
  {
    memory::TagScope tag(memory::Tag::gradients);
    std::vector<at::Tensor> rows;
    for (const at::Tensor& gradient : gradients.gradients) rows.push_back(gradient.reshape(-1));
    next.flat = at::cat(rows);
  }
  std::int64_t begin = 0;
  for (at::Tensor& gradient : gradients.gradients) {
    const std::int64_t count = gradient.numel();
    gradient = next.flat.narrow(0, begin, count).view(gradient.sizes());
    begin += count;
  }
  next.gradients = std::move(gradients);
  next.sent_at = TraceRecorder::now();
  distributed::ProcessGroup& group = shares_.group();
  next.sending = shares_.holds_all() ? group.all_reduce(next.flat) : group.reduce(next.flat, owner);
  travelling_.push_back(std::move(next));
}

void InsideUpdates::receive_first() {
  Travelling first = std::move(travelling_.front());
  travelling_.pop_front();
  first.sending->wait();
  if (recorder_ != nullptr) {
    recorder_->add(StepKind::communication,
                   "gradients, " + text::bytes_text(static_cast<double>(first.flat.nbytes())),
                   first.sent_at, first.sending->done_at());
  }
  if (!shares_.holds_all() && first.owner != shares_.group().rank()) return;
  first.flat.div_(shares_.group().world());
  use(first.gradients);
}

bool InsideUpdates::all_finite(const Gradients& final) {
  const auto in_own = [&](std::size_t i) { return shares_.place_in_own(final.places[i]); };
  if (!final.gradients.front().device().is_cpu()) {
    const auto norms = at::_foreach_norm(final.gradients, 2, at::kDouble);
    norms_.insert(norms_.end(), norms.begin(), norms.end());
    for (std::size_t i = 0; i < final.places.size(); ++i) norm_places_.push_back(in_own(i));
    return true;  // as far as is known here
  }
  bool finite = true;
  for (std::size_t i = 0; i < final.places.size(); ++i) {
    double& own = squares_[in_own(i)];
    own = squared_norm(final.gradients[i]);
    finite = finite && std::isfinite(own);
  }
  return finite;
}

void InsideUpdates::use(const Gradients& final) {
  finite_ = all_finite(final) && finite_;
  if (measuring_ || !finite_) return;
  changed_ = true;
  std::vector<std::size_t> own;
  for (std::size_t i = 0; i < final.places.size(); ++i) {
    own.push_back(shares_.place_in_own(final.places[i]));
    shares_.all()[final.places[i]].second.mutable_grad() = final.gradients[i];
  }
  optimizer_.update(own, learning_rate_, gradient_factor_);
  for (const std::size_t place : final.places) shares_.all()[place].second.mutable_grad().reset();
}

void InsideUpdates::finish() {
  at::NoGradGuard no_grad;
  while (!travelling_.empty()) receive_first();
  std::sort(outside_.begin(), outside_.end(),
            [](const Gradients& a, const Gradients& b) { return a.places < b.places; });
  for (const Gradients& own : outside_) send(own);
  outside_.clear();
  while (!travelling_.empty()) receive_first();
}

std::vector<double> InsideUpdates::squares(c10::ArrayRef<double> values) const {
  std::vector<double> all = squares_;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all[norm_places_[i]] = values[i] * values[i];
  }
  return all;
}

}  // namespace pareprop::train
