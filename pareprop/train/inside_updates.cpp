#include "pareprop/train/inside_updates.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/text/units.h"

namespace pareprop::train {

InsideUpdates::InsideUpdates(const Network& network, optim::Optimizer& optimizer,
                             distributed::ProcessGroup& group)
    : optimizer_(optimizer), group_(group) {
  const io::NamedTensors& parameters = optimizer_.parameters();
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
  squares_.assign(optimizer_.parameters().size(), 0.0);
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
  if (group_.world() == 1) return use(own);
  if (block.block == TakenGradients::kOutside) {
    outside_.push_back(std::move(own));
    return;
  }
  send(std::move(own));
  if (travelling_.size() > 1) receive_first();
}

void InsideUpdates::send(Gradients own) {
  Travelling next;
  {
    memory::TagScope tag(memory::Tag::gradients);
    std::vector<at::Tensor> rows;
    for (const at::Tensor& gradient : own.gradients) rows.push_back(gradient.reshape(-1));
    next.flat = at::cat(rows);
  }
  std::int64_t begin = 0;
  for (at::Tensor& gradient : own.gradients) {
    const std::int64_t count = gradient.numel();
    gradient = next.flat.narrow(0, begin, count).view(gradient.sizes());
    begin += count;
  }
  next.gradients = std::move(own);
  next.sent_at = TraceRecorder::now();
  next.sending = group_.all_reduce(next.flat);
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
  first.flat.div_(group_.world());
  use(first.gradients);
}

bool InsideUpdates::all_finite(const Gradients& final) {
  if (!final.gradients.front().device().is_cpu()) {
    const auto norms = at::_foreach_norm(final.gradients, 2, at::kDouble);
    norms_.insert(norms_.end(), norms.begin(), norms.end());
    norm_places_.insert(norm_places_.end(), final.places.begin(), final.places.end());
    return true;  // as far as is known here
  }
  bool finite = true;
  for (std::size_t i = 0; i < final.places.size(); ++i) {
    double& own = squares_[final.places[i]];
    own = squared_norm(final.gradients[i]);
    finite = finite && std::isfinite(own);
  }
  return finite;
}

void InsideUpdates::use(const Gradients& final) {
  finite_ = all_finite(final) && finite_;
  if (measuring_ || !finite_) return;
  changed_ = true;
  const io::NamedTensors& parameters = optimizer_.parameters();
  for (std::size_t i = 0; i < final.places.size(); ++i) {
    parameters[final.places[i]].second.mutable_grad() = final.gradients[i];
  }
  optimizer_.update(final.places, learning_rate_, gradient_factor_);
  for (const std::size_t place : final.places) parameters[place].second.mutable_grad().reset();
}

void InsideUpdates::finish() {
  at::NoGradGuard no_grad;
  while (!travelling_.empty()) receive_first();
  std::sort(outside_.begin(), outside_.end(),
            [](const Gradients& a, const Gradients& b) { return a.places < b.places; });
  for (Gradients& own : outside_) send(std::move(own));
  outside_.clear();
  while (!travelling_.empty()) receive_first();
}

GradientNorm InsideUpdates::norm(c10::ArrayRef<double> values) const {
  std::vector<double> squares = squares_;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares[norm_places_[i]] = values[i] * values[i];
  }
  GradientNorm result;
  double sum = 0.0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    if (!std::isfinite(squares[i])) result.first_not_finite = optimizer_.parameters()[i].first;
    sum += squares[i];
  }
  result.norm = std::sqrt(sum);
  return result;
}

}  // namespace pareprop::train
