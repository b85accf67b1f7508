#include "pareprop/models/pretrained.h"

#include <algorithm>
#include <stdexcept>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/hugging_face_config.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/timm.h"
#include "pareprop/models/timm_config.h"

namespace pareprop::models {
namespace {

namespace fs = std::filesystem;

bool any_begins(const io::TensorFiles& files, const std::string& begin) {
  return std::any_of(files.entries().begin(), files.entries().end(),
                     [&](const auto* entry) { return entry->name.starts_with(begin); });
}

// Of its ViT and MViT, reversible or plain.
bool are_slowfasts(const io::TensorFiles& files) {
  return files.contains("head.projection.weight") || any_begins(files, "rev_backbone.") ||
         any_begins(files, "blocks.0.attn.pool_");
}

bool are_ours(const io::TensorFiles& files) {
  return files.contains("patch_embed.weight") || files.contains("embeddings.word");
}

}  // namespace

std::string_view title(NamesOf names) {
  switch (names) {
    case NamesOf::pareprop:
      return "pareprop";
    case NamesOf::hugging_face:
      return "Hugging Face";
    case NamesOf::timm:
      return "timm";
  }
  return "";
}

Pretrained::Pretrained(const fs::path& path) : files_(path) {
  recognise();
  told_ = told_by(naming_ ? shapes_under_own_names(files_, *naming_) : shapes_of(files_));
  read_architecture();
}

void Pretrained::recognise() {
  if (are_ours(files_)) return;
  const std::string path = files_.path().string();
  if (are_slowfasts(files_)) {
    throw std::invalid_argument(path +
                                ": its tensors have the names of SlowFast; convert its .pyth file "
                                "with 'python -m pareprop.convert_slowfast FILE.pyth "
                                "OUT.safetensors' (or convert_slowfast.py, in share/pareprop of an "
                                "installation and in tools of the sources), and give what that "
                                "writes");
  }
  if (const TimmKind kind = timm_kind(files_); kind != TimmKind::none) {
    names_ = NamesOf::timm;
    naming_ = timm_naming(kind);
    return;
  }
  type_ = hugging_face_type(files_);
  // What no name tells, config.json may.
  const fs::path config = files_.folder() / "config.json";
  if (type_.empty() && fs::exists(config)) {
    const ConfigFile said(config);
    if (said.has("architecture")) {
      read_timm(said, told_, files_.path().string());
    } else if (said.has("model_type")) {
      type_ = supported_type(said);
    }
  }
  if (!type_.empty()) {
    const std::string body = body_of(type_);
    names_ = NamesOf::hugging_face;
    naming_ = hugging_face_naming(type_, any_begins(files_, body) ? body : "");
    return;
  }
  throw std::invalid_argument(
      path +
      ": its tensors have names that are not known; expected those of pareprop, of Hugging Face's "
      "ViT, DeiT, Swin, RobertaPreLayerNorm, RoBERTa or BERT, or of timm's ViT, DeiT, Swin or "
      "MViTv2");
}

void Pretrained::read_architecture() {
  const fs::path path = files_.folder() / "config.json";
  const std::string weights = files_.path().string();
  if (names_ != NamesOf::pareprop && fs::exists(path)) {
    const ConfigFile config(path);
    if (names_ == NamesOf::timm && config.has("architecture")) {
      architecture_ = read_timm(config, told_, weights);
      return;
    }
    if (names_ == NamesOf::hugging_face && config.has("model_type")) {
      if (const std::string said = supported_type(config); body_of(said) != body_of(type_)) {
        config.fail("model_type", said + " contradicts the weights: " + weights +
                                      " has the names of " + type_ + "; nothing was loaded");
      }
      architecture_ = read_hugging_face(config, told_, weights);
      architecture_->input = read_preprocessor(files_.folder(), type_);
      return;
    }
  }
  if (told_.family.empty()) {
    if (names_ == NamesOf::pareprop) return;
    throw std::invalid_argument(weights + ": its tensors have names of " +
                                std::string(title(names_)) +
                                ", but not all by which a network here is known: of embeddings, "
                                "positions, and attention in block 0; give the file as it was "
                                "published");
  }
  const Base base = base_of(told_);
  if (names_ == NamesOf::pareprop && !base.is_exact) return;
  needs_heads_ = !base.is_exact && (told_.family == "vit" || told_.family == "roberta");
  architecture_ = by_shapes(base);
}

Architecture Pretrained::by_shapes(const Base& base) {
  Architecture found;
  found.model = base.model;
  found.sizes = models::sizes_as(told_, base.model).value_or(told_.sizes);
  if (told_.family == "roberta" && names_ == NamesOf::hugging_face) {
    found.sizes.encoder = encoder_of(type_);
  }
  if (names_ != NamesOf::pareprop) {
    assumed_ = "no config.json of the model beside " + files_.path().string() +
               ": what its shapes do not tell (" + (needs_heads_ ? "" : "heads, ") +
               "eps of norms, image size) is that of " + found.model;
  } else if (found.sizes.plain &&
             found.sizes.encoder.value_or(Encoder::norm_first) == Encoder::norm_first &&
             told_.family != "mvit") {
    assumed_ =
        "shapes do not tell a plain network from a reversible one with an ending: it is taken as "
        "plain unless --ending is named";
  }
  return found;
}

Adapted Pretrained::load(Model& model, const AdaptOptions& options) const {
  if (!naming_) return load_adapted(model, files_, own_names(model), options);
  return load_adapted(model, files_, names_of(model, *naming_), options);
}

}  // namespace pareprop::models
