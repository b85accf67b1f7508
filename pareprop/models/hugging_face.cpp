#include "pareprop/models/hugging_face.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/models/roberta.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"

namespace pareprop::models {
namespace {

// ViT and DeiT.
Naming vit_naming(const std::string& body, bool distilled) {
  const std::string file = body + "encoder.layer.#.", memory = body + "layers.#.";
  const auto projection = [&](const std::string& in_files, const std::string& in_memory) {
    return std::vector{file + "attention.attention." + in_files + ".*",
                       memory + "attention." + in_memory + ".*"};
  };
  Rules rules = {
      same("cls_token", body + "embeddings.cls_token"),
      same("pos_embed", body + "embeddings.position_embeddings"),
      same("patch_embed.*", body + "embeddings.patch_embeddings.projection.*"),
      either("blocks.#.f.norm.*", file + "layernorm_before.*", memory + "layernorm_before.*"),
      {"blocks.#.f.qkv.*",
       {projection("query", "q_proj"), projection("key", "k_proj"), projection("value", "v_proj")}},
      either("blocks.#.f.proj.*", file + "attention.output.dense.*", memory + "attention.o_proj.*"),
      either("blocks.#.g.norm.*", file + "layernorm_after.*", memory + "layernorm_after.*"),
      either("blocks.#.g.fc1.*", file + "intermediate.dense.*", memory + "mlp.fc1.*"),
      either("blocks.#.g.fc2.*", file + "output.dense.*", memory + "mlp.fc2.*"),
      same("norm.*", body + "layernorm.*"),
  };
  if (distilled) {
    rules.push_back(same("dist_token", body + "embeddings.distillation_token"));
    rules.push_back(same("head_dist.*", "distillation_classifier.*"));
    rules.push_back(either("head.*", "classifier.*", "cls_classifier.*"));
  } else {
    rules.push_back(same("head.*", "classifier.*"));
  }
  return {.rules = std::move(rules),
          .ignored = {body + "pooler.*", body + "embeddings.mask_token"}};
}

Naming swin_naming(const std::string& body) {
  const std::string stage = body + "encoder.layers.#.", block = stage + "blocks.#.";
  const std::string ours = "stages.#.blocks.#.";
  const auto projection = [&](const std::string& in_files, const std::string& in_memory) {
    return std::vector{block + "attention.self." + in_files + ".*",
                       block + "attention." + in_memory + ".*"};
  };
  Rules rules = {
      same("patch_embed.*", body + "embeddings.patch_embeddings.projection.*"),
      same("patch_norm.*", body + "embeddings.norm.*"),
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
      same("norm.*", body + "layernorm.*"),
      same("head.*", "classifier.*"),
  };
  return {.rules = std::move(rules), .ignored = {body + "pooler.*", "*.relative_position_index"}};
}

// Norms of texts. Files that were made of TensorFlow's checkpoints, such as bert-base-uncased's,
// call the weight gamma and the bias beta.
void add_norm(Rules& rules, const std::string& ours, const std::string& theirs) {
  rules.push_back(either(ours + ".weight", theirs + ".weight", theirs + ".gamma"));
  rules.push_back(either(ours + ".bias", theirs + ".bias", theirs + ".beta"));
}

// RobertaPreLayerNorm, RoBERTa and BERT, with heads for words or for classes of texts.
Naming text_naming(const std::string& body, Encoder encoder) {
  const bool first = encoder == Encoder::norm_first, bert = encoder == Encoder::bert;
  const std::string layer = body + "encoder.layer.#.";
  const auto projection = [&](const std::string& which) {
    return std::vector{layer + "attention.self." + which + ".*"};
  };
  const std::string words = bert ? "cls.predictions." : "lm_head.";
  const std::string dense = bert ? words + "transform." : words;
  Rules rules = {
      same("embeddings.word", body + "embeddings.word_embeddings.weight"),
      same("embeddings.position", body + "embeddings.position_embeddings.weight"),
      same("embeddings.type", body + "embeddings.token_type_embeddings.weight"),
      {"blocks.#.f.qkv.*", {projection("query"), projection("key"), projection("value")}},
      same("blocks.#.f.proj.*", layer + "attention.output.dense.*"),
      same("blocks.#.g.fc1.*", layer + "intermediate.dense.*"),
      same("blocks.#.g.fc2.*", layer + "output.dense.*"),
      same("head_dense.*", dense + "dense.*"),
      same("head_bias", words + "bias"),
      same("head_pool.*", bert ? body + "pooler.dense.*" : "classifier.dense.*"),
      same("head_out.*", bert ? "classifier.*" : "classifier.out_proj.*"),
  };
  add_norm(rules, "embeddings.norm", body + "embeddings.LayerNorm");
  add_norm(rules, "blocks.#.f.norm",
           layer + (first ? "attention.LayerNorm" : "attention.output.LayerNorm"));
  add_norm(rules, "blocks.#.g.norm",
           layer + (first ? "intermediate.LayerNorm" : "output.LayerNorm"));
  add_norm(rules, "head_norm", dense + (bert ? "LayerNorm" : "layer_norm"));
  if (first) add_norm(rules, "norm", body + "LayerNorm");
  return {.rules = std::move(rules),
          .ignored = {body + "pooler.*", "*.position_ids", "*.token_type_ids", "classifier.*",
                      "cls.seq_relationship.*"},
          .copies = {{words + "decoder.weight", "embeddings.word"},
                     {words + "decoder.bias", "head_bias"}}};
}

}  // namespace

bool is_of_text(const std::string& model_type) {
  return model_type.starts_with("roberta") || model_type == "bert";
}

Encoder encoder_of(const std::string& model_type) {
  if (model_type == "roberta") return Encoder::roberta;
  return model_type == "bert" ? Encoder::bert : Encoder::norm_first;
}

std::string body_of(const std::string& model_type) {
  return model_type == "roberta-prelayernorm" ? "roberta_prelayernorm." : model_type + ".";
}

Naming hugging_face_naming(const std::string& model_type, const std::string& prefix) {
  if (model_type == "vit") return vit_naming(prefix, false);
  if (model_type == "deit") return vit_naming(prefix, true);
  if (model_type == "swin") return swin_naming(prefix);
  if (is_of_text(model_type)) return text_naming(prefix, encoder_of(model_type));
  throw std::logic_error("no names for the kind of model " + model_type);
}

std::string hugging_face_type(const io::TensorFiles& files) {
  const auto any = [&](const auto& fits) {
    return std::any_of(files.entries().begin(), files.entries().end(),
                       [&](const auto* entry) { return fits(entry->name); });
  };
  const auto has = [&](const std::string& end) {
    return any([&](const std::string& name) { return name.ends_with(end); });
  };
  const auto has_begin = [&](const std::string& begin) {
    return any([&](const std::string& name) { return name.starts_with(begin); });
  };
  if (has("embeddings.patch_embeddings.projection.weight")) {
    if (has("embeddings.distillation_token")) return "deit";
    if (has("embeddings.cls_token")) return "vit";
    return has("relative_position_bias_table") ? "swin" : "";
  }
  if (!has("embeddings.word_embeddings.weight")) return "";
  for (const char* weight : {"weight", "gamma"}) {
    if (has(std::string("layer.0.attention.LayerNorm.") + weight)) return "roberta-prelayernorm";
  }
  // Bodies alone look the same.
  for (const char* type : {"roberta", "bert"}) {
    if (has_begin(body_of(type) + "encoder.layer.0.attention.output.LayerNorm.")) return type;
  }
  return "";
}

std::string hugging_face_type(const Model& model) {
  if (const auto* vit = dynamic_cast<const PlainViT*>(&model)) {
    return vit->config().distillation == Distillation::none ? "vit" : "deit";
  }
  if (dynamic_cast<const PlainSwin*>(&model) != nullptr) return "swin";
  if (const auto* text = dynamic_cast<const PlainRoberta*>(&model)) {
    const Encoder encoder = text->config().encoder;
    return encoder == Encoder::norm_first ? "roberta-prelayernorm" : std::string(name(encoder));
  }
  throw std::invalid_argument(
      "Hugging Face transformers has no network like this one: its weights fit only the plain ViT, "
      "Swin and RoBERTa (Overrides::plain)");
}

NameMap hugging_face_names(const Model& model) {
  const std::string type = hugging_face_type(model);
  Naming naming = hugging_face_naming(type, body_of(type));
  const auto* vit = dynamic_cast<const PlainViT*>(&model);
  if (vit != nullptr && vit->config().distillation == Distillation::heads) {
    for (Rule& rule : naming.rules) {
      if (rule.ours == "head.*") rule = same("head.*", "cls_classifier.*");
    }
  }
  return names_of(model, naming);
}

}  // namespace pareprop::models
