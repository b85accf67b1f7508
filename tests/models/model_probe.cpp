// Runs a network on given weights and input, for comparison with another implementation:
//     model_probe vit|swin|mvit|roberta|rev_vit|rev_mvit IN OUT key=value...
// The files are safetensors. IN has "input", optionally "mask", and "cotangent". The weights are in
// hugging_face=FILE under Hugging Face's names, in weights=FILE under ours, or in IN as
// "weight.NAME". OUT gets "scores" and "gradient.NAME", the gradients of sum(scores * cotangent),
// under the same names; export=FILE gets the weights under Hugging Face's.

#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/hugging_face.h"
#include "pareprop/models/mvit.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"

namespace {

using namespace pareprop;
using Settings = std::map<std::string, double>;
using Files = std::map<std::string, std::string>;

std::shared_ptr<models::Model> make(const std::string& family, Settings& s) {
  const models::DropRates none;
  auto whole = [&](const std::string& key) { return static_cast<std::int64_t>(s.at(key)); };
  auto image = [&] {
    return models::ImageShape{
        .image_size = whole("image_size"), .channels = 3, .classes = whole("classes")};
  };
  if (family == "swin") {  // depth0, heads0, depth1, ...
    models::SwinConfig config{image(),         whole("patch"),    whole("width"), {},  {},
                              whole("window"), s.at("mlp_ratio"), s.at("eps"),    none};
    for (int i = 0; s.count("depth" + std::to_string(i)) > 0; ++i) {
      config.depths.push_back(static_cast<int>(s.at("depth" + std::to_string(i))));
      config.heads.push_back(whole("heads" + std::to_string(i)));
    }
    return std::make_shared<models::PlainSwin>(config, models::WeightOptions{});
  }
  // depth0, depth1, ...; optional: kv0, transition_kv0, ..., concat, mean_first, widen_in_mlp, eps.
  if (family == "mvit" || family == "rev_mvit") {
    std::vector<int> depths;
    for (int i = 0; s.count("depth" + std::to_string(i)) > 0; ++i) {
      depths.push_back(static_cast<int>(s.at("depth" + std::to_string(i))));
    }
    models::MViTConfig config = models::mvit_config(whole("width"), whole("heads"), depths);
    config.image = image();
    if (s.at("version") == 1) config.version = models::MViTVersion::v1;
    if (s["concat"] != 0) config.junction = models::MViTJunction::concat;
    if (s.count("eps") > 0) config.eps = s["eps"];
    config.mean_first = s["mean_first"] != 0;
    config.widen_in_mlp = s["widen_in_mlp"] != 0;
    for (std::size_t i = 0; i < depths.size(); ++i) {
      const std::string kv = "kv" + std::to_string(i);
      if (s.count(kv) > 0) config.stages[i].kv_stride = whole(kv);
      if (s.count("transition_" + kv) > 0) {
        config.stages[i].transition_kv_stride = whole("transition_" + kv);
      }
    }
    if (family == "mvit")
      return std::make_shared<models::PlainMViT>(config, models::WeightOptions{});
    return std::make_shared<models::RevMViT>(config, models::WeightOptions{});
  }
  const auto depth = static_cast<int>(s.at("depth"));
  if (family == "vit" || family == "rev_vit") {
    const models::ViTConfig config{image(),        whole("patch"),      whole("width"), depth,
                                   whole("heads"), whole("mlp_hidden"), s.at("eps"),    none};
    if (family == "rev_vit") {
      return std::make_shared<models::RevViT>(config, models::WeightOptions{});
    }
    return std::make_shared<models::PlainViT>(config, models::WeightOptions{});
  }
  return std::make_shared<models::PlainRoberta>(
      models::RobertaConfig{whole("vocabulary"), whole("positions"), whole("length"),
                            whole("width"), depth, whole("heads"), whole("mlp_hidden"), s.at("eps"),
                            none},
      models::WeightOptions{});
}

models::NameMap load(models::Model& model, const io::SafetensorsFile& in, const Files& files) {
  if (const auto path = files.find("hugging_face"); path != files.end()) {
    const models::NameMap names = models::hugging_face_names(model);
    models::load_weights(model, io::SafetensorsFile(path->second), names);
    return names;
  }
  if (const auto path = files.find("weights"); path != files.end()) {
    models::load_weights(model, io::SafetensorsFile(path->second));
  } else {
    models::NameMap names = models::own_names(model, "weight.");
    names.ignored = {"input", "mask", "cotangent"};
    models::load_weights(model, in, names);
  }
  return models::own_names(model);
}

void run(const std::string& family, const char* in, const char* out, Settings settings,
         const Files& files) {
  const io::SafetensorsFile file(in);
  const auto model = make(family, settings);
  const models::NameMap names = load(*model, file, files);
  if (const auto path = files.find("export"); path != files.end()) {
    models::save_weights(*model, path->second, models::hugging_face_names(*model));
  }
  const models::Batch batch{.input = file.tensor("input"),
                            .target = {},
                            .mask = file.contains("mask") ? file.tensor("mask") : at::Tensor()};
  const at::Tensor scores = model->forward(batch);
  scores.mul(file.tensor("cotangent")).sum().backward();
  io::NamedTensors gradients;
  for (const auto& parameter : model->named_parameters()) {
    gradients.emplace_back(parameter.key(), parameter.value().grad());
  }
  io::NamedTensors results{{"scores", scores.detach()}};
  for (const auto& [name, gradient] : models::under_names(gradients, names)) {
    results.emplace_back("gradient." + name, gradient);
  }
  io::write_safetensors(out, results);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Settings settings;
    Files files;
    for (int i = 4; i < argc; ++i) {
      const std::string text = argv[i];
      const auto equals = text.find('=');
      const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
      if (key == "hugging_face" || key == "weights" || key == "export") {
        files[key] = value;
      } else {
        settings[key] = std::atof(value.c_str());
      }
    }
    run(argv[1], argv[2], argv[3], settings, files);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
