#pragma once

#include <string>

#include "pareprop/models/name_rules.h"
#include "pareprop/models/overrides.h"
#include "pareprop/models/weights.h"

namespace pareprop::models {

// The names of the same network in Hugging Face transformers. PlainViT is
// ViTForImageClassification, or with a distillation token DeiTForImageClassification (with two
// heads: ...WithTeacher). PlainSwin is SwinForImageClassification. PlainRoberta is, by its encoder,
// RobertaPreLayerNormForMaskedLM, RobertaForMaskedLM or BertForMaskedLM; with classes it is
// ...ForSequenceClassification. Two kinds of names are read: those of files on the Hub, which
// save_pretrained writes in every version, and those of modules in memory since version 5. The
// first kind is written.
//
// Throws std::invalid_argument for other networks.
NameMap hugging_face_names(const Model& model);

// The same for a kind of model (the `model_type` of config.json): "vit", "deit", "swin",
// "roberta-prelayernorm", "roberta" or "bert". A file of a body alone (ViTModel) has no `prefix`;
// others have body_of().
Naming hugging_face_naming(const std::string& model_type, const std::string& prefix);
std::string body_of(const std::string& model_type);  // "vit."
bool is_of_text(const std::string& model_type);
Encoder encoder_of(const std::string& model_type);  // REQUIRES: is_of_text

// The kind of model in a file, by the names of its tensors; empty: none of these.
std::string hugging_face_type(const io::TensorFiles& files);

// The kind of a network of ours, as above.
std::string hugging_face_type(const Model& model);

}  // namespace pareprop::models
