#pragma once

#include <string>

#include "pareprop/models/name_rules.h"
#include "pareprop/models/weights.h"

namespace pareprop::models {

// The names of the same network in timm: PlainViT is VisionTransformer (with a distillation token
// and two heads, DeiT's), PlainSwin is SwinTransformer, PlainMViT is MultiScaleVit.
//
// Throws std::invalid_argument for other networks, and for a distillation token without its head,
// which timm does not have.
NameMap timm_names(const Model& model);

// Which of them, and where Swin keeps the layers between stages: at the end of a stage, as the
// official files and timm before 0.9, or at the start of the next one.
enum class TimmKind { none, vit, swin, swin_merging_at_end, mvit };
TimmKind timm_kind(const io::TensorFiles& files);  // by the names of its tensors

// REQUIRES: kind is not none.
Naming timm_naming(TimmKind kind);

}  // namespace pareprop::models
