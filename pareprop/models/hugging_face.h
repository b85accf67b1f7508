#pragma once

#include "pareprop/models/weights.h"

namespace pareprop::models {

// The names of the same network in Hugging Face transformers: PlainViT is
// ViTForImageClassification, PlainSwin is SwinForImageClassification, PlainRoberta is
// RobertaPreLayerNormForMaskedLM. Read are the names of files on the Hub, which save_pretrained
// writes in every version, and those that models have in memory since version 5; written are the
// former.
//
// Throws std::invalid_argument for other networks.
NameMap hugging_face_names(const Model& model);

}  // namespace pareprop::models
