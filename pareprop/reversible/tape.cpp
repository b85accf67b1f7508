#include "pareprop/reversible/tape.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <stdexcept>
#include <unordered_set>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/describe.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/ops/tape_scopes.h"

namespace pareprop {
namespace {

void check_output(const BranchSetting& setting, const at::Tensor& x, const at::Tensor& y) {
  if (!y.defined()) {
    throw std::invalid_argument(
        setting.where + ": the branch returned an undefined tensor; expected " + describe(x));
  }
  const bool shape = setting.any_shape || y.sizes() == x.sizes();
  if (!shape || y.device() != x.device() || !at::isFloatingType(y.scalar_type())) {
    throw std::invalid_argument(setting.where + ": the branch returned " + describe(y) +
                                "; expected the shape and device of its input, " + describe(x) +
                                ", in any floating type");
  }
}

std::uint64_t state_version(const std::vector<NamedParameter>& buffers) {
  std::uint64_t sum = 0;
  for (const auto& buffer : buffers) sum += static_cast<std::uint64_t>(buffer.tensor._version());
  return sum;
}

at::Tensor call(const BranchSetting& setting, const at::Tensor& x,
                const std::vector<at::Tensor>& extras, bool output_needed) {
  const auto buffers = setting.branch->buffers();
  const auto version = state_version(buffers);
  RandomStream random(setting.random_key);
  RandomScope random_scope(random);
  AutocastScope autocast_scope(x.device().type(), setting.autocast);
  at::Tensor y = (*setting.branch)(x, {{extras, setting.where}, output_needed});
  check_output(setting, x, y);
  if (state_version(buffers) != version) {
    throw std::logic_error(
        setting.where +
        ": the branch changes a buffer of its module (running statistics?); a "
        "recomputation would change it again. Keep such layers out of the stack");
  }
  return y;
}

// The edge that carries a leaf's gradient. A leaf that no graph uses has no accumulator: an edge to
// nowhere then, whose gradient stays undefined.
torch::autograd::Edge leaf_edge(const at::Tensor& leaf) {
  auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  if (!accumulator) return {c10::make_intrusive<torch::autograd::Identity>(), 0};
  return {std::move(accumulator), 0};
}

// Note [Ends of a tape]. While it lives graphs that are recorded end there.
class OwnEnds {
 public:
  explicit OwnEnds(const std::vector<at::Tensor>& leaves) {
    for (const at::Tensor& leaf : leaves) {
      before_.emplace_back(leaf, torch::autograd::impl::try_get_grad_accumulator(leaf));
      torch::autograd::impl::set_grad_accumulator(leaf, no_accumulator());
      ends_.emplace_back(torch::autograd::impl::grad_accumulator(leaf), 0);
    }
  }
  ~OwnEnds() {
    for (auto& [leaf, accumulator] : before_) {
      torch::autograd::impl::set_grad_accumulator(
          leaf, c10::weak_intrusive_ptr<torch::autograd::Node>(accumulator));
    }
  }
  OwnEnds(const OwnEnds&) = delete;
  OwnEnds& operator=(const OwnEnds&) = delete;

  const std::vector<torch::autograd::Edge>& ends() const { return ends_; }

 private:
  using Accumulator = c10::intrusive_ptr<torch::autograd::Node>;
  static c10::weak_intrusive_ptr<torch::autograd::Node> no_accumulator() {
    return c10::weak_intrusive_ptr<torch::autograd::Node>(Accumulator());
  }

  std::vector<std::pair<at::Tensor, Accumulator>> before_;
  std::vector<torch::autograd::Edge> ends_;
};

}  // namespace

at::Tensor run_branch(const BranchSetting& setting, const at::Tensor& x,
                      const std::vector<at::Tensor>& extras) {
  c10::AutoGradMode no_graph(false);
  return call(setting, x, extras, true);
}

std::pair<Tape, at::Tensor> record_tape(const BranchSetting& setting, const at::Tensor& x,
                                        const std::vector<at::Tensor>& extras,
                                        const TapeOptions& options) {
  c10::AutoGradMode graph(true);
  LeanTapeScope lean(options.lean);
  memory::TagScope tag(memory::Tag::tape);
  Tape tape;
  const OwnEnds own(options.own_leaves);
  tape.leaves = own.ends();
  tape.input = x.detach().requires_grad_(true);
  const at::Tensor output = call(setting, tape.input, extras, options.output_needed);
  if (output.requires_grad()) tape.root = torch::autograd::impl::gradient_edge(output);
  return {std::move(tape), output.detach()};
}

void check_no_unknown_leaf(const BranchSetting& setting, const Tape& tape,
                           const std::vector<at::Tensor>& known) {
  std::unordered_set<const c10::TensorImpl*> allowed{tape.input.unsafeGetTensorImpl()};
  for (const auto& t : known) allowed.insert(t.unsafeGetTensorImpl());
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  visit(tape.root.function.get());
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node);
    if (leaf != nullptr && !allowed.contains(leaf->variable.unsafeGetTensorImpl())) {
      throw std::logic_error(setting.where + ": the branch uses a tensor " +
                             describe(leaf->variable) +
                             " that requires gradient but is neither one of its parameters nor an "
                             "extra argument; its gradient would be lost. Pass it as one of these");
    }
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
}

TapeGradients tape_gradients(const Tape& tape, const at::Tensor& dy,
                             const std::vector<at::Tensor>& others, DeferredGradients* deferred,
                             bool keep) {
  TapeGradients result;
  result.others.resize(others.size());
  if (!tape.root.is_valid()) return result;
  torch::autograd::edge_list leaves{leaf_edge(tape.input)};
  if (tape.leaves.empty()) {
    for (const at::Tensor& other : others) leaves.push_back(leaf_edge(other));
  } else {
    leaves.insert(leaves.end(), tape.leaves.begin(), tape.leaves.end());
  }
  const auto dtype = tape.root.function->input_metadata(tape.root.input_nr).dtype().toScalarType();
  DeferScope scope(deferred);
  ConsumeScope consume(!keep);
  const NoDrawScope no_draw;
  auto gradients = torch::autograd::Engine::get_default_engine().execute(
      {tape.root}, {dy.to(dtype)}, keep, /*create_graph=*/false, /*accumulate_grad=*/false, leaves);
  result.input = std::move(gradients[0]);
  for (std::size_t i = 0; i < others.size(); ++i) result.others[i] = std::move(gradients[i + 1]);
  return result;
}

}  // namespace pareprop
