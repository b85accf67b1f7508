#pragma once

#include "pareprop/models/weights.h"

namespace pareprop::models {

// The names of the same network in Hugging Face transformers: PlainViT is
// ViTForImageClassification, PlainSwin is SwinForImageClassification, PlainRoberta is
// RobertaPreLayerNormForMaskedLM. Two kinds of names are read: those of files on the Hub, which
// save_pretrained writes in every version, and those of modules in memory since version 5. The
// first kind is written.
//
// Throws std::invalid_argument for other networks.
NameMap hugging_face_names(const Model& model);

}  // namespace pareprop::models
