#include "pareprop/models/hugging_face.h"

#include <cctype>
#include <cmath>
#include <stdexcept>

#include "pareprop/models/roberta.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"

namespace pareprop::models {
namespace {

// A family's names are rules. In our name # stands for a number and * for the rest; in theirs, the
// same ones take their places.
using Parts = std::vector<std::vector<std::string>>;
struct Rule {
  std::string ours;
  Parts theirs;  // each by the name in files, then by other ones
};
using Rules = std::vector<Rule>;

Rule same(std::string ours, std::string in_files) { return {std::move(ours), {{in_files}}}; }
Rule either(std::string ours, std::string in_files, std::string in_memory) {
  return {std::move(ours), {{std::move(in_files), std::move(in_memory)}}};
}

// What was in the places of # and *, in their order; false where the name is another.
bool fits(const std::string& name, const std::string& rule, std::vector<std::string>& places) {
  places.clear();
  std::size_t at = 0;
  for (const char c : rule) {
    if (c == '*') {
      places.push_back(name.substr(at));
      return true;
    }
    if (c == '#') {
      const std::size_t begin = at;
      while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at]))) ++at;
      if (at == begin) return false;
      places.push_back(name.substr(begin, at - begin));
    } else if (at >= name.size() || name[at++] != c) {
      return false;
    }
  }
  return at == name.size();
}

std::string filled(const std::string& rule, const std::vector<std::string>& places) {
  std::string name;
  std::size_t next = 0;
  for (const char c : rule) {
    if (c == '#' || c == '*') {
      name += places.at(next++);
    } else {
      name += c;
    }
  }
  return name;
}

Rules vit_rules() {
  const std::string file = "vit.encoder.layer.#.", memory = "vit.layers.#.";
  const auto projection = [&](const std::string& in_files, const std::string& in_memory) {
    return std::vector{file + "attention.attention." + in_files + ".*",
                       memory + "attention." + in_memory + ".*"};
  };
  return {
      same("cls_token", "vit.embeddings.cls_token"),
      same("pos_embed", "vit.embeddings.position_embeddings"),
      same("patch_embed.*", "vit.embeddings.patch_embeddings.projection.*"),
      either("blocks.#.f.norm.*", file + "layernorm_before.*", memory + "layernorm_before.*"),
      {"blocks.#.f.qkv.*",
       {projection("query", "q_proj"), projection("key", "k_proj"), projection("value", "v_proj")}},
      either("blocks.#.f.proj.*", file + "attention.output.dense.*", memory + "attention.o_proj.*"),
      either("blocks.#.g.norm.*", file + "layernorm_after.*", memory + "layernorm_after.*"),
      either("blocks.#.g.fc1.*", file + "intermediate.dense.*", memory + "mlp.fc1.*"),
      either("blocks.#.g.fc2.*", file + "output.dense.*", memory + "mlp.fc2.*"),
      same("norm.*", "vit.layernorm.*"),
      same("head.*", "classifier.*"),
  };
}

Rules swin_rules() {
  const std::string stage = "swin.encoder.layers.#.", block = stage + "blocks.#.";
  const std::string ours = "stages.#.blocks.#.";
  const auto projection = [&](const std::string& in_files, const std::string& in_memory) {
    return std::vector{block + "attention.self." + in_files + ".*",
                       block + "attention." + in_memory + ".*"};
  };
  return {
      same("patch_embed.*", "swin.embeddings.patch_embeddings.projection.*"),
      same("patch_norm.*", "swin.embeddings.norm.*"),
      same(ours + "f.norm.*", block + "layernorm_before.*"),
      {ours + "f.qkv.*",
       {projection("query", "q_proj"), projection("key", "k_proj"), projection("value", "v_proj")}},
      either(ours + "f.proj.*", block + "attention.output.dense.*", block + "attention.o_proj.*"),
      either(ours + "f.relative_position_bias_table",
             block + "attention.self.relative_position_bias_table",
             block + "attention.relative_position_bias.relative_position_bias_table"),
      same(ours + "g.norm.*", block + "layernorm_after.*"),
      either(ours + "g.fc1.*", block + "intermediate.dense.*", block + "mlp.fc1.*"),
      either(ours + "g.fc2.*", block + "output.dense.*", block + "mlp.fc2.*"),
      same("stages.#.downsample.*", stage + "downsample.*"),
      same("norm.*", "swin.layernorm.*"),
      same("head.*", "classifier.*"),
  };
}

Rules roberta_rules() {
  const std::string body = "roberta_prelayernorm.", layer = body + "encoder.layer.#.";
  const auto projection = [&](const std::string& which) {
    return std::vector{layer + "attention.self." + which + ".*"};
  };
  return {
      same("embeddings.word", body + "embeddings.word_embeddings.weight"),
      same("embeddings.position", body + "embeddings.position_embeddings.weight"),
      same("embeddings.type", body + "embeddings.token_type_embeddings.weight"),
      same("embeddings.norm.*", body + "embeddings.LayerNorm.*"),
      same("blocks.#.f.norm.*", layer + "attention.LayerNorm.*"),
      {"blocks.#.f.qkv.*", {projection("query"), projection("key"), projection("value")}},
      same("blocks.#.f.proj.*", layer + "attention.output.dense.*"),
      same("blocks.#.g.norm.*", layer + "intermediate.LayerNorm.*"),
      same("blocks.#.g.fc1.*", layer + "intermediate.dense.*"),
      same("blocks.#.g.fc2.*", layer + "output.dense.*"),
      same("norm.*", body + "LayerNorm.*"),
      same("head_dense.*", "lm_head.dense.*"),
      same("head_norm.*", "lm_head.layer_norm.*"),
      same("head_bias", "lm_head.bias"),
  };
}

NamedParts parts_of(const std::string& parameter, const Rules& rules) {
  std::vector<std::string> places;
  for (const Rule& rule : rules) {
    if (!fits(parameter, rule.ours, places)) continue;
    NamedParts named{.parameter = parameter, .parts = rule.theirs};
    for (auto& alternatives : named.parts) {
      for (std::string& name : alternatives) name = filled(name, places);
    }
    return named;
  }
  throw std::logic_error("no Hugging Face name for the parameter " + parameter);
}

// Theirs is a convolution: (width, channels, patch, patch).
std::vector<std::int64_t> convolution(const at::Tensor& linear, std::int64_t channels) {
  const auto patch = std::llround(std::sqrt(static_cast<double>(linear.size(1) / channels)));
  return {linear.size(0), channels, patch, patch};
}

NameMap map_of(const Model& model, const Rules& rules, std::vector<std::string> ignored) {
  NameMap map{.parameters = {}, .ignored = std::move(ignored), .metadata = {{"format", "pt"}}};
  const auto* image = dynamic_cast<const ImageModel*>(&model);
  for (const auto& item : model.named_parameters()) {
    map.parameters.push_back(parts_of(item.key(), rules));
    if (image != nullptr && item.key() == "patch_embed.weight") {
      map.parameters.back().shape = convolution(item.value(), image->shape().channels);
    }
  }
  return map;
}

}  // namespace

NameMap hugging_face_names(const Model& model) {
  if (dynamic_cast<const PlainViT*>(&model) != nullptr) {
    return map_of(model, vit_rules(), {"vit.pooler.*"});
  }
  if (dynamic_cast<const PlainSwin*>(&model) != nullptr) {
    return map_of(model, swin_rules(), {"swin.pooler.*", "*.relative_position_index"});
  }
  if (dynamic_cast<const PlainRoberta*>(&model) != nullptr) {
    NameMap map = map_of(model, roberta_rules(),
                         {"roberta_prelayernorm.pooler.*", "*.position_ids", "*.token_type_ids"});
    map.copies = {{"lm_head.decoder.weight", "embeddings.word"},
                  {"lm_head.decoder.bias", "head_bias"}};
    return map;
  }
  throw std::invalid_argument(
      "Hugging Face transformers has no network like this one: its weights fit only the plain ViT, "
      "Swin and RoBERTa (Overrides::plain)");
}

}  // namespace pareprop::models
