#include "pareprop/train/presets.h"

namespace pareprop::train {
namespace {

// What the recipes for ImageNet have in common.
void imagenet(TrainConfig& c) {
  c.epochs = 300;
  c.warmup = 70.0 / 300;
  c.last_learning_rate = 1e-6;
  c.mixup = 0.8;
  c.cutmix = 1.0;
  c.label_smoothing = 0.1;
  c.erase = 0.25;
  c.dropout = 0.0;
}

void rev_vit_small(TrainConfig& c) {
  imagenet(c);
  c.model = "vit_small";
  c.batch = 512;
  c.learning_rate = 5e-4;
  c.weight_decay = 0.05;
  c.clip = 1.0;
  c.drop_path = 0.1;
}

void rev_vit_base(TrainConfig& c) {
  rev_vit_small(c);
  c.model = "vit_base";
  c.weight_decay = 0.1;
  c.clip = 2.0;
  c.drop_path = 0.2;
}

void rev_mvit_base(TrainConfig& c) {
  imagenet(c);
  c.model = "mvit_v1_base";
  c.batch = 256;
  c.learning_rate = 2.5e-4;
  c.weight_decay = 0.05;
  c.clip = 1.0;
  c.drop_path = 0.1;
}

void rev_swin_tiny(TrainConfig& c) {
  imagenet(c);
  c.model = "swin_tiny";
  c.batch = 1024;
  c.learning_rate = 1e-3;
  c.last_learning_rate = 5e-6;
  c.warmup = 20.0 / 300;
  c.weight_decay = 0.05;
  c.clip = 5.0;
}

// Adam without decay or warm-up. minREV's own network takes the mean over tokens before the last
// norm, and has eps 1e-5 there and in G; vit_cifar takes the norm first and has 1e-6, as
// SlowFast's.
void minrev_cifar(TrainConfig& c) {
  c.model = "vit_cifar";
  c.data = "cifar10:cifar-10-batches-bin";
  c.batch = 128;
  c.epochs = 100;
  c.learning_rate = 1e-3;
  c.warmup = 0.0;
  c.weight_decay = 0.0;
  c.clip = 0.0;
}

void roberta_base(TrainConfig& c) {
  c.model = "roberta_base";
  c.data = "persuasion";
  c.seq_len = 512;
  c.batch = 16;
  c.accumulate = 128;  // 2048 sequences a step
  c.steps = 125000;
  c.warmup = 10000.0 / 125000;
  c.decay = "linear";
  c.learning_rate = 5e-4;
  c.weight_decay = 0.01;
  c.beta2 = 0.98;
  c.eps = 1e-6;
  c.clip = 0.0;
  c.dropout = 0.1;
}

// Small networks on small grey images, minutes on two cores.
void fashion(TrainConfig& c) {
  c.model = "vit_cifar";
  c.data = "fashion-mnist";
  c.width = 128;
  c.depth = {3};
  c.batch = 64;
  c.augment = "none";  // too short for it: 72 % instead of 81 % right after 500 steps
  c.epochs = 6;
  c.learning_rate = 2e-3;
  c.weight_decay = 0.05;
  c.initial_std = 0.08;
}

// Two stages on maps of 14 and 7 tokens a side, which windows of 7 divide.
void fashion_swin(TrainConfig& c) {
  fashion(c);
  c.model = "swin_cifar";
  c.patch = 2;
  c.window = 7;
  c.width = 64;
  c.heads = {2};
  c.depth = {2, 2};
  c.epochs = 10;
  c.learning_rate = 1e-3;
}

// Three stages on maps of 14, 7 and 4 tokens a side.
void fashion_mvit(TrainConfig& c) {
  fashion(c);
  c.model = "mvit_cifar";
  c.width = 64;
  c.depth = {1, 2, 1};
  c.epochs = 10;
  c.learning_rate = 1e-3;
}

// From the weights of another task (--weights), which are good already: small steps, smaller ones
// for lower layers, and only the augmentation that suits the images.
void fine_tune(TrainConfig& c) {
  c.batch = 32;
  c.epochs = 30;
  c.learning_rate = 2e-4;
  c.last_learning_rate = 1e-6;
  c.warmup = 0.1;
  c.layer_decay = 0.75;
  c.weight_decay = 0.05;
  c.drop_path = 0.1;
  c.label_smoothing = 0.1;
}

// A few hundred samples: the new head is noise for most of a short run otherwise.
void fine_tune_few(TrainConfig& c) {
  fine_tune(c);
  c.batch = 16;
  c.epochs = 50;
  c.head_steps = 100;
  c.layer_decay = 0.65;
  c.learning_rate = 1e-4;
}

// The network stays as it is: few weights are trained, and no step can harm the others.
void fine_tune_head(TrainConfig& c) {
  c.batch = 32;
  c.epochs = 30;
  c.freeze = "*,!head*";
  c.learning_rate = 1e-3;
  c.warmup = 0.1;
  c.weight_decay = 0.0;
  c.dropout = 0.0;
  c.drop_path = 0.0;
  c.label_smoothing = 0.1;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"fashion", "a small RevViT on Fashion-MNIST, minutes on two cores", fashion},
      {"fashion-swin", "a small RevSwin on Fashion-MNIST, for 20 minutes on two cores; not tuned",
       fashion_swin},
      {"fashion-mvit", "a small RevMViT on Fashion-MNIST, for 20 minutes on two cores; not tuned",
       fashion_mvit},
      {"fine-tune", "weights of another task (--weights) on a small data set", fine_tune},
      {"fine-tune-few", "the same for a few hundred samples: the head first, then everything",
       fine_tune_few},
      {"fine-tune-head", "the same, but only the head is trained", fine_tune_head},
      {"minrev-cifar", "minREV's recipe for CIFAR-10, with the network vit_cifar", minrev_cifar},
      {"rev-vit-small", "Rev-ViT-S on ImageNet as SlowFast trains it (512 images per step)",
       rev_vit_small},
      {"rev-vit-base", "Rev-ViT-B on ImageNet as SlowFast trains it (512 images per step)",
       rev_vit_base},
      {"rev-mvit-base", "Rev-MViT-B on ImageNet as SlowFast trains it (256 images per step)",
       rev_mvit_base},
      {"rev-swin-tiny", "RevSwin-T on ImageNet (1024 images per step)", rev_swin_tiny},
      {"roberta-base", "RoBERTa's pretraining (2048 sequences of 512 tokens per step)",
       roberta_base},
  };
  return all;
}

void apply_preset(TrainConfig& config, std::string_view name) {
  std::string known;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.apply(config);
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  throw FieldError("preset", "expected one of " + known + "; got '" + std::string(name) + "'");
}

}  // namespace pareprop::train
