#include "pareprop/models/timm.h"

#include <stdexcept>

#include "pareprop/models/mvit.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"

namespace pareprop::models {
namespace {

// What the blocks of all three have.
Rules block_rules(const std::string& ours, const std::string& theirs) {
  return {
      same(ours + "f.norm.*", theirs + "norm1.*"),
      same(ours + "f.qkv.*", theirs + "attn.qkv.*"),
      same(ours + "f.proj.*", theirs + "attn.proj.*"),
      same(ours + "g.norm.*", theirs + "norm2.*"),
      same(ours + "g.fc1.*", theirs + "mlp.fc1.*"),
      same(ours + "g.fc2.*", theirs + "mlp.fc2.*"),
  };
}

Rules with(Rules rules, const Rules& more) {
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

Naming timm_vit() {
  return {.rules = with(block_rules("blocks.#.", "blocks.#."),
                        {
                            same("cls_token", "cls_token"),
                            same("dist_token", "dist_token"),
                            same("pos_embed", "pos_embed"),
                            same("patch_embed.*", "patch_embed.proj.*"),
                            same("norm.*", "norm.*"),
                            same("head.*", "head.*"),
                            same("head_dist.*", "head_dist.*"),
                        })};
}

Naming timm_swin(bool merging_at_end) {
  const std::string merging = merging_at_end ? "layers.#." : "layers.^.";
  return {.rules = with(block_rules("stages.#.blocks.#.", "layers.#.blocks.#."),
                        {
                            same("stages.#.blocks.#.f.relative_position_bias_table",
                                 "layers.#.blocks.#.attn.relative_position_bias_table"),
                            same("stages.#.downsample.*", merging + "downsample.*"),
                            same("patch_embed.*", "patch_embed.proj.*"),
                            same("patch_norm.*", "patch_embed.norm.*"),
                            same("norm.*", "norm.*"),
                            {"head.*", {{"head.fc.*", "head.*"}}},
                        }),
          .ignored = {"*.relative_position_index", "*.attn_mask"}};
}

Naming timm_mvit() {
  const std::string block = "stages.#.blocks.#.";
  Rules rules = block_rules(block, block);
  for (const char* part : {"pool_q.*", "pool_k.*", "pool_v.*", "norm_q.*", "norm_k.*", "norm_v.*",
                           "rel_pos_h", "rel_pos_w"}) {
    rules.push_back(same(block + "f." + part, block + "attn." + part));
  }
  return {.rules = with(rules, {
                                   either(block + "shortcut.*", block + "shortcut_proj_attn.*",
                                          block + "shortcut_proj_mlp.*"),
                                   same("patch_embed.*", "patch_embed.proj.*"),
                                   same("norm.*", "norm.*"),
                                   either("head.*", "head.fc.*", "head.*"),
                               })};
}

}  // namespace

TimmKind timm_kind(const io::TensorFiles& files) {
  if (!files.contains("patch_embed.proj.weight")) return TimmKind::none;
  if (files.contains("blocks.0.attn.qkv.weight")) return TimmKind::vit;
  if (files.contains("stages.0.blocks.0.attn.pool_q.weight")) return TimmKind::mvit;
  if (!files.contains("layers.0.blocks.0.attn.relative_position_bias_table")) return TimmKind::none;
  return files.contains("layers.0.downsample.reduction.weight") ? TimmKind::swin_merging_at_end
                                                                : TimmKind::swin;
}

Naming timm_naming(TimmKind kind) {
  switch (kind) {
    case TimmKind::vit:
      return timm_vit();
    case TimmKind::swin:
      return timm_swin(false);
    case TimmKind::swin_merging_at_end:
      return timm_swin(true);
    case TimmKind::mvit:
      return timm_mvit();
    case TimmKind::none:
      break;
  }
  throw std::logic_error("no names of timm");
}

NameMap timm_names(const Model& model) {
  if (const auto* vit = dynamic_cast<const PlainViT*>(&model)) {
    if (vit->config().distillation == Distillation::token) {
      throw std::invalid_argument(
          "timm has no network with a distillation token and one head: its DeiT has two heads "
          "(distillation: heads)");
    }
    return names_of(model, timm_naming(TimmKind::vit));
  }
  if (dynamic_cast<const PlainSwin*>(&model) != nullptr) {
    return names_of(model, timm_naming(TimmKind::swin));
  }
  if (const auto* mvit = dynamic_cast<const PlainMViT*>(&model)) {
    if (mvit->config().version == MViTVersion::v2) {
      Naming naming = timm_naming(TimmKind::mvit);
      if (mvit->config().widen_in_mlp) {
        const std::string block = "stages.#.blocks.#.";
        for (Rule& rule : naming.rules) {
          if (rule.ours == block + "shortcut.*") {
            rule = same(rule.ours, block + "shortcut_proj_mlp.*");
          }
        }
      }
      return names_of(model, naming);
    }
  }
  throw std::invalid_argument(
      "timm has no network like this one: its weights fit only the plain ViT, Swin and MViTv2 "
      "(Overrides::plain)");
}

}  // namespace pareprop::models
