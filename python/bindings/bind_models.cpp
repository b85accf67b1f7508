#include <pybind11/stl.h>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/weights.h"
#include "pareprop/reversible/gradient_taker.h"
#include "python/bindings/bind.h"

namespace pareprop::python {
namespace {

namespace py = pybind11;
using models::Model;
using NamedTensorList = std::vector<std::pair<std::string, at::Tensor>>;
using MaybeTensor = std::optional<at::Tensor>;

NamedTensorList listed(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  NamedTensorList result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

data::Batch batch_of(const at::Tensor& input, const MaybeTensor& target, const MaybeTensor& mask) {
  return {
      .input = input, .target = target.value_or(at::Tensor()), .mask = mask.value_or(at::Tensor())};
}

py::object given(const at::Tensor& tensor) {
  return tensor.defined() ? py::cast(tensor) : py::object(py::none());
}

models::ForwardOptions pass_of(std::uint64_t seed, const std::shared_ptr<GradientTaker>& taker) {
  return {.pass = std::make_shared<Pass>(seed, 0, nullptr, taker)};
}

models::Overrides overrides_of(const py::dict& changes) {
  models::Overrides result;
  const auto set = [&](const char* name, auto& field) {
    if (changes.contains(name)) field = changes[name].cast<std::decay_t<decltype(field)>>();
  };
  set("depths", result.depths);
  set("width", result.width);
  set("image_size", result.image_size);
  set("channels", result.channels);
  set("classes", result.classes);
  set("heads", result.heads);
  set("mlp_ratio", result.mlp_ratio);
  set("patch", result.patch);
  set("window", result.window);
  set("norm_eps", result.norm_eps);
  set("length", result.length);
  set("vocabulary", result.vocabulary);
  set("dropout", result.dropout);
  set("drop_path", result.drop_path);
  set("plain", result.plain);
  return result;
}

std::shared_ptr<Model> make(const std::string& name, const py::dict& overrides,
                            const at::Device& device, at::ScalarType dtype, std::uint64_t seed) {
  const models::Overrides changes = overrides_of(overrides);
  const py::gil_scoped_release no_gil;
  return models::make_model(name, changes, {.dtype = dtype, .device = device, .seed = seed});
}

// For each parameter: its name, the names of its parts, and the shape of a part in the file.
py::list names_of(const models::NameMap& map) {
  py::list result;
  for (const models::NamedParts& parts : map.parameters) {
    result.append(py::make_tuple(parts.parameter, parts.parts, parts.shape));
  }
  return result;
}

void load(Model& model, const std::string& path) {
  const io::SafetensorsFile file(path);
  bool own = false;
  for (const auto& item : model.named_parameters()) own = own || file.contains(item.key());
  models::load_weights(model, file,
                       own ? models::own_names(model) : models::hugging_face_names(model));
}

}  // namespace

void bind_models(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  module.def("model_names", &models::model_names);

  py::class_<Model, Network, std::shared_ptr<Model>>(module, "Model", py::multiple_inheritance())
      .def(py::init(&make), py::arg("name"), py::arg("overrides"), py::arg("device"),
           py::arg("dtype"), py::arg("seed"))
      .def("named_parameters", [](const Model& model) { return listed(model.named_parameters()); })
      .def("named_buffers", [](const Model& model) { return listed(model.named_buffers()); })
      .def(
          "forward",
          [](Model& model, const at::Tensor& input, const MaybeTensor& mask, std::uint64_t seed,
             const std::shared_ptr<GradientTaker>& taker) {
            return model.forward(batch_of(input, std::nullopt, mask), pass_of(seed, taker));
          },
          py::arg("input"), py::arg("mask"), py::arg("seed"), py::arg("taker") = nullptr, no_gil)
      .def(
          "loss",
          [](Model& model, const at::Tensor& input, const at::Tensor& target,
             const MaybeTensor& mask, std::uint64_t seed,
             const std::shared_ptr<GradientTaker>& taker) {
            return model.loss(batch_of(input, target, mask), pass_of(seed, taker));
          },
          py::arg("input"), py::arg("target"), py::arg("mask"), py::arg("seed"),
          py::arg("taker") = nullptr, no_gil)
      .def(
          "example",
          [](const Model& model, std::int64_t batch, std::uint64_t seed) {
            const data::Batch example = model.example(batch, seed);
            return py::make_tuple(given(example.input), given(example.target), given(example.mask));
          },
          py::arg("batch"), py::arg("seed"))
      .def(
          "train", [](Model& model, bool on) { model.train(on); }, py::arg("on"))
      .def(
          "follow_weights",
          [](Model& model) {
            const at::TensorOptions weights = model.weight_options();
            model.to(weights.device(), c10::typeMetaToScalarType(weights.dtype()));
          },
          "Moves what else the network has to the device and type of its weights.")
      .def(
          "set_options",
          [](Model& model, const StackOptions& options) { model.set_options(options); },
          py::arg("options"))
      .def("hugging_face_names",
           [](const Model& model) { return names_of(models::hugging_face_names(model)); })
      .def("load", &load, py::arg("path"), no_gil)
      .def(
          "save",
          [](const Model& model, const std::string& path, bool hugging_face) {
            models::save_weights(
                model, path,
                hugging_face ? models::hugging_face_names(model) : models::own_names(model));
          },
          py::arg("path"), py::arg("hugging_face"), no_gil);
}

}  // namespace pareprop::python
