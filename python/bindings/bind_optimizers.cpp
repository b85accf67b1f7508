#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "pareprop/optim/make_optimizer.h"
#include "pareprop/reversible/taken_gradients.h"
#include "python/bindings/bind.h"
#include "python/bindings/held_object.h"

namespace pareprop::python {
namespace {

namespace py = pybind11;
using optim::Optimizer;
using SharedOptimizer = std::shared_ptr<Optimizer>;

SharedOptimizer make_optimizer_of(const std::string& kind, const io::NamedTensors& parameters,
                                  const std::string& state, std::pair<double, double> betas,
                                  double eps, double momentum, double weight_decay,
                                  std::uint64_t seed) {
  return optim::make_optimizer(parameters, {.kind = optim::parse_optimizer_kind(kind),
                                            .state = optim::parse_state_kind(state),
                                            .beta1 = betas.first,
                                            .beta2 = betas.second,
                                            .eps = eps,
                                            .momentum = momentum,
                                            .weight_decay = weight_decay,
                                            .decay_all = true,
                                            .seed = seed});
}

// Where a parameter is: whose, and its place there.
struct Owner {
  SharedOptimizer optimizer;
  std::size_t number = 0;  // of the optimizer
  std::size_t place = 0;
};

// Steps each parameter as soon as its gradient is final (Note [Updates inside the backward pass]),
// until end(). Passes that run later leave their gradients to autograd. `rates` returns the
// learning rates that the optimizers have now.
class StepInside final : public GradientTaker {
 public:
  StepInside(const Network& network, const std::vector<SharedOptimizer>& optimizers,
             py::object rates)
      : rates_(hold(std::move(rates))) {
    for (std::size_t number = 0; number < optimizers.size(); ++number) {
      const io::NamedTensors& parameters = optimizers[number]->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        owners_[parameters[i].second.unsafeGetTensorImpl()] = {optimizers[number], number, i};
      }
    }
    for (const at::Tensor& weight : network.weights()) {
      if (!weight.requires_grad() || owners_.contains(weight.unsafeGetTensorImpl())) continue;
      throw std::invalid_argument(
          "update_inside: the model has a parameter that requires gradient and is not in the "
          "optimizer; give it to the optimizer, or freeze it");
    }
    taken_ = std::make_unique<TakenGradients>(network,
                                              [this](const BlockGradients& block) { take(block); });
  }

  bool takes(const at::Tensor& parameter) const override {
    return taken_ != nullptr && taken_->takes(parameter);
  }

  void take(const BlockGradients& block) override {
    if (block.parameters.empty()) return;
    const at::NoGradGuard no_grad;
    const std::vector<double> rates = rates_now();
    for (std::size_t i = 0; i < block.parameters.size(); ++i) {
      const at::Tensor& parameter = block.parameters[i];
      const Owner& owner = owners_.at(parameter.unsafeGetTensorImpl());
      parameter.mutable_grad() = block.gradients[i];
      owner.optimizer->update(owner.place, rates[owner.number], 1.0);
      parameter.mutable_grad().reset();
    }
  }

  void end() { taken_.reset(); }

 private:
  std::vector<double> rates_now() const {
    const py::gil_scoped_acquire gil;
    return (*rates_)().cast<std::vector<double>>();
  }

  HeldObject rates_;
  std::unordered_map<const c10::TensorImpl*, Owner> owners_;
  std::unique_ptr<TakenGradients> taken_;
};

}  // namespace

void bind_optimizers(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<Optimizer, SharedOptimizer>(module, "Optimizer")
      .def(py::init(&make_optimizer_of), py::arg("kind"), py::arg("parameters"), py::kw_only(),
           py::arg("state"), py::arg("betas"), py::arg("eps"), py::arg("momentum"),
           py::arg("weight_decay"), py::arg("seed"))
      .def(
          "update",
          [](Optimizer& optimizer, const std::vector<std::size_t>& which, double learning_rate) {
            optimizer.update(which, learning_rate, 1.0);
          },
          py::arg("which"), py::arg("learning_rate"), no_gil)
      .def("state", &Optimizer::state);
  py::class_<StepInside, GradientTaker, std::shared_ptr<StepInside>>(module, "StepInside")
      .def(py::init<const Network&, const std::vector<SharedOptimizer>&, py::object>(),
           py::arg("network"), py::arg("optimizers"), py::arg("rates"))
      .def("end", &StepInside::end);
}

}  // namespace pareprop::python
