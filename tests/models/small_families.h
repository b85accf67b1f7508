#pragma once

#include "pareprop/models/overrides.h"

namespace pareprop::testing {

struct SmallFamily {
  const char* name;
  models::Overrides overrides;
};

// One small network of each.
inline const SmallFamily kSmallFamilies[] = {
    {"vit_tiny", {.depths = {3}, .width = 48, .image_size = 64}},
    {"swin_tiny", {.depths = {2, 1, 2, 1}, .width = 24, .image_size = 56}},
    {"mvit_cifar", {.depths = {2, 1, 2}, .width = 16}},
    {"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}}};

}  // namespace pareprop::testing
