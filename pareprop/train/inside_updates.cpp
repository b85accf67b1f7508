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
  waiting_.clear();
  unsent_ = shares_.all().size();
  sent_.assign(unsent_, false);
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
  const std::size_t last = *std::max_element(own.places.begin(), own.places.end());
  waiting_.emplace(last, std::move(own));
  send_those_whose_turn_it_is();
}

void InsideUpdates::send_those_whose_turn_it_is() {
  for (; unsent_ > 0; --unsent_) {
    const std::size_t place = unsent_ - 1;
    if (sent_[place] || !shares_.all()[place].second.requires_grad()) continue;
    const auto next = waiting_.find(place);
    if (next == waiting_.end()) return;
    const Gradients own = std::move(next->second);
    waiting_.erase(next);
    for (const std::size_t each : own.places) sent_[each] = true;
    // One travels while the next is computed.
    while (!travelling_.empty()) receive_first();
    send(own);
  }
}

// Large gradients travel alone, so that they need not be copied.
void InsideUpdates::send(const Gradients& of_block) {
  constexpr std::size_t kLarge = std::size_t{16} << 10;
  for (int owner = 0; owner < shares_.group().world(); ++owner) {
    Gradients small;
    for (std::size_t i = 0; i < of_block.places.size(); ++i) {
      if (shares_.owner(of_block.places[i]) != owner) continue;
      const at::Tensor& gradient = of_block.gradients[i];
      if (gradient.nbytes() >= kLarge) {
        send_to(owner, {{of_block.places[i]}, {gradient}});
        continue;
      }
      small.places.push_back(of_block.places[i]);
      small.gradients.push_back(gradient);
    }
    if (!small.places.empty()) send_to(owner, std::move(small));
  }
}

namespace {

// Whether nobody else sees what becomes of its memory. Memory of an accelerator would be freed on
// another stream than it is from.
bool is_free_to_travel(const at::Tensor& gradient) {
  return gradient.is_cpu() && gradient.is_contiguous() && gradient.storage().use_count() == 1;
}

}  // namespace

void InsideUpdates::send_to(int owner, Gradients gradients) {
  Travelling next;
  next.owner = owner;
  if (gradients.gradients.size() == 1 && is_free_to_travel(gradients.gradients.front())) {
    next.flat = gradients.gradients.front().view(-1);
  } else {
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
  // Those that waited for a parameter that got no gradient.
  for (auto own = waiting_.rbegin(); own != waiting_.rend(); ++own) send(own->second);
  waiting_.clear();
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
