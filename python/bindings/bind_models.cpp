#include <pybind11/stl.h>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/pretrained.h"
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

void visit_sizes(models::Overrides& sizes, const auto& visit) {
  visit("depths", sizes.depths);
  visit("width", sizes.width);
  visit("heads", sizes.heads);
  visit("mlp_ratio", sizes.mlp_ratio);
  visit("patch", sizes.patch);
  visit("window", sizes.window);
  visit("image_size", sizes.image_size);
  visit("channels", sizes.channels);
  visit("classes", sizes.classes);
  visit("length", sizes.length);
  visit("vocabulary", sizes.vocabulary);
  visit("positions", sizes.positions);
  visit("norm_eps", sizes.norm_eps);
  visit("no_qkv_bias", sizes.no_qkv_bias);
  visit("distillation", sizes.distillation);
  visit("encoder", sizes.encoder);
  visit("dropout", sizes.dropout);
  visit("drop_path", sizes.drop_path);
  visit("plain", sizes.plain);
  visit("ending", sizes.ending);
  visit("class_token", sizes.class_token);
}

template <typename T>
void read(const py::handle& given, T& field) {
  field = given.cast<T>();
}
void read(const py::handle& given, models::Distillation& field) {
  field = models::parse_distillation(given.cast<std::string>());
}
void read(const py::handle& given, std::optional<models::Encoder>& field) {
  field = models::parse_encoder(given.cast<std::string>());
}
void read(const py::handle& given, std::optional<models::Ending>& field) {
  field = models::parse_ending(given.cast<std::string>());
}

models::Overrides overrides_of(const py::dict& changes) {
  models::Overrides result;
  visit_sizes(result, [&](const char* name, auto& field) {
    if (changes.contains(name)) read(changes[name], field);
  });
  return result;
}

py::object written(const auto& field) { return py::cast(field); }
py::object written(models::Distillation field) { return py::cast(std::string(name(field))); }
py::object written(const std::optional<models::Encoder>& field) {
  return py::cast(std::string(name(*field)));
}
py::object written(const std::optional<models::Ending>& field) {
  return py::cast(std::string(name(*field)));
}

// Those that differ from no change.
py::dict dict_of(models::Overrides sizes) {
  py::dict result;
  visit_sizes(sizes, [&](const char* name, const auto& field) {
    if (field != std::decay_t<decltype(field)>()) result[name] = written(field);
  });
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

py::object model_of(const models::Pretrained& weights) {
  const auto& architecture = weights.architecture();
  return architecture ? py::cast(architecture->model) : py::object(py::none());
}

py::dict sizes_of(const models::Pretrained& weights) {
  const auto& architecture = weights.architecture();
  return architecture ? dict_of(architecture->sizes) : py::dict();
}

void load(Model& model, const std::string& path) {
  const io::TensorFiles files(path);
  bool own = false;
  for (const auto& item : model.named_parameters()) own = own || files.contains(item.key());
  models::load_weights(model, files,
                       own ? models::own_names(model) : models::hugging_face_names(model));
}

}  // namespace

void bind_models(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  module.def("model_names", &models::model_names);
  py::class_<models::Pretrained>(module, "Pretrained",
                                 "Weights in files, and the network that they are of.")
      .def(py::init<const std::string&>(), py::arg("path"), no_gil)
      .def_property_readonly("names",
                             [](const models::Pretrained& weights) {
                               return std::string(models::title(weights.names()));
                             })
      .def_property_readonly(
          "folder",
          [](const models::Pretrained& weights) { return weights.files().folder().string(); })
      .def_property_readonly("model", &model_of)
      .def_property_readonly("sizes", &sizes_of)
      .def_property_readonly("assumed", &models::Pretrained::assumed)
      .def_property_readonly("needs_heads", &models::Pretrained::needs_heads)
      .def(
          "shape",
          [](const models::Pretrained& weights, const std::string& name) {
            return weights.files().entry(name).shape;
          },
          py::arg("name"))
      .def(
          "load",
          [](const models::Pretrained& weights, Model& model) {
            const models::Adapted adapted = weights.load(model);
            return std::pair(adapted.what, adapted.new_head);
          },
          py::arg("model"), no_gil,
          "Returns what was adapted, and whether the head was not loaded.");

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
