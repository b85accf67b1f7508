#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pareprop/distributed/shares.h"
#include "pareprop/optim/optimizer.h"
#include "pareprop/reversible/taken_gradients.h"
#include "pareprop/trace/recorder.h"

namespace pareprop::train {

// Steps an optimizer inside the backward pass (Note [Updates inside the backward pass]). The
// weights get the same bits as from Optimizer::step() after it. Among several processes the
// gradients of a block, or of one parameter outside of the stacks, are averaged first, while those
// below are computed. All processes send in the same order, from the last parameter of the network
// to the first, whatever autograd has ready first; a gradient that comes before its turn waits.
// Where state is divided (Note [Shares]), the owner of a parameter alone gets the mean and updates
// it; the others have its weights after Shares::gather_weights().
class InsideUpdates {
 public:
  // The optimizer is that of shares.own(). All outlive it.
  InsideUpdates(const Network& network, optim::Optimizer& optimizer, distributed::Shares& shares);

  // For the passes whose gradients it takes.
  const std::shared_ptr<GradientTaker>& taker() const { return taker_; }

  // Before a backward pass. Either no weight changes and the gradients only have their norm taken,
  // or the optimizer steps. On the CPU it stops at the first block whose gradients are not finite.
  void begin_measuring(TraceRecorder* recorder);
  void begin_stepping(double learning_rate, double gradient_factor, TraceRecorder* recorder);
  // After it: all that was sent has come back and was used.
  void finish();

  // The squared norm of the gradient of each of shares.own() in that pass. On an accelerator
  // `values` are those of numbers(), read by whoever reads (Note [Reads after the step]); on the
  // CPU there are none.
  const std::vector<at::Tensor>& numbers() const { return norms_; }
  std::vector<double> squares(c10::ArrayRef<double> values) const;

  // Whether a weight may have been changed since begin_stepping().
  bool changed_weights() const { return changed_; }

 private:
  struct Gradients {
    std::vector<std::size_t> places;  // in Shares::all()
    std::vector<at::Tensor> gradients;
  };
  struct Travelling {
    int owner = 0;
    Gradients gradients;  // views of `flat`
    at::Tensor flat;
    std::unique_ptr<distributed::Pending> sending;
    double sent_at = 0.0;
  };

  void begin(TraceRecorder* recorder);
  void take(const BlockGradients& block);
  void send_those_whose_turn_it_is();
  void send(const Gradients& of_block);
  void send_to(int owner, Gradients gradients);
  void receive_first();
  void use(const Gradients& final);
  bool all_finite(const Gradients& final);

  optim::Optimizer& optimizer_;
  distributed::Shares& shares_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> places_;
  std::shared_ptr<GradientTaker> taker_;

  // Of the backward pass under way, or the last.
  TraceRecorder* recorder_ = nullptr;
  bool measuring_ = false, changed_ = false, finite_ = true;
  double learning_rate_ = 0.0, gradient_factor_ = 1.0;
  std::deque<Travelling> travelling_;
  std::map<std::size_t, Gradients> waiting_;  // for their turn, by the last of their places
  std::vector<bool> sent_;                    // a place
  std::size_t unsent_ = 0;                // places from this one on were sent, or are not trained
  std::vector<double> squares_;           // on the CPU, one a parameter of own()
  std::vector<at::Tensor> norms_;         // on an accelerator, of one gradient each
  std::vector<std::size_t> norm_places_;  // of which parameter of own()
};

}  // namespace pareprop::train
