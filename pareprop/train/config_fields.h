#pragma once

#include "pareprop/train/train_config.h"

namespace pareprop::train {

// The list of fields: calls visit(key, help, value) for each, in order. `Config` is TrainConfig or
// const TrainConfig.
template <typename Config, typename Visit>
void visit_fields(Config& c, Visit&& visit) {
  visit("model", "Network; 'pareprop models' lists them", c.model);
  visit("plain", "The ordinary, non-reversible network (modes stored and checkpoint)", c.plain);
  visit("depth", "Blocks, or those of each stage separated by commas; none: the model's", c.depth);
  visit("width", "Channels; none: the model's", c.width);
  visit("image_size", "Pixels of a side; none: the data's, or the model's where they differ",
        c.image_size);
  visit("seq_len", "Tokens of a sequence; none: 128", c.seq_len);
  visit("dropout", "Probability; none: the model's", c.dropout);
  visit("drop_path", "Probability at the last block; none: the model's", c.drop_path);
  visit("initial_std", "Deviation of the first weights; 0: the model's own, 0.02", c.initial_std);
  visit("weights", "Safetensors file of weights to begin with", c.weights);

  visit("data",
        "digits, fashion-mnist, persuasion, synthetic, cifar10:PATH, cifar100:PATH, idx:PATH, "
        "folder:PATH, text:PATH",
        c.data);
  visit("tokenizer", "tokenizer.json or its folder; none: trained on the text", c.tokenizer);
  visit("vocabulary", "Tokens of a tokenizer that is trained", c.vocabulary);
  visit("augment", "auto: what suits the images; none", c.augment);
  visit("mixup", "Alpha of mixup; 0: off", c.mixup);
  visit("cutmix", "Alpha of CutMix; 0: off", c.cutmix);
  visit("mix_probability", "Share of images that are mixed", c.mix_probability);
  visit("erase", "Probability of a rectangle of noise in an image", c.erase);
  visit("label_smoothing", "Share of a label spread over all classes", c.label_smoothing);
  visit("workers", "Threads that prepare data; 0: none of their own", c.workers);
  visit("strict", "Stop at an image that cannot be read, instead of leaving it out", c.strict);

  visit("mode", "stored, checkpoint, reprop, pareprop or auto", c.mode);
  visit("budget",
        "Bytes that all tensors of a process may take, such as 8GiB; none: what is free, less a "
        "margin",
        c.budget);
  visit("force", "Train also when the plan says that memory will not suffice", c.force);
  visit("precision", "Of the branches: fp32, bf16 or fp64", c.precision);
  visit("streams", "float, exact (fixed point: the same bits in every mode), auto: exact with bf16",
        c.streams);
  visit("exact", "The same as --streams exact", c.exact);
  visit("batch", "Samples that one process computes at a time", c.batch);
  visit("accumulate", "Batches whose gradients make one step", c.accumulate);
  visit("steps", "Steps of the optimizer; 0: as many as the epochs have", c.steps);
  visit("epochs", "Passes over the data, where steps is 0", c.epochs);
  visit("seed", "Of weights, order, augmentation and dropout", c.seed);

  visit("learning_rate", "At its highest", c.learning_rate);
  visit("last_learning_rate", "At the end", c.last_learning_rate);
  visit("warmup", "Share of the steps in which it rises", c.warmup);
  visit("decay", "How it falls: cosine, linear or constant", c.decay);
  visit("weight_decay", "Not of biases, norms and positions", c.weight_decay);
  visit("beta1", "Of AdamW", c.beta1);
  visit("beta2", "Of AdamW", c.beta2);
  visit("eps", "Of AdamW", c.eps);
  visit("clip", "Largest norm of all gradients; 0: any", c.clip);
  visit("ema", "Decay of averaged weights, which are evaluated then; 0: none", c.ema);

  visit("out", "Folder of the run", c.out);
  visit(
      "save_every",
      "Also save a checkpoint after so many steps; 0: save at the end only. Checkpoints are saved "
      "at every evaluation unless this is 0",
      c.save_every);
  visit("save_minutes", "Save a checkpoint at least this often, unless --save-every is 0",
        c.save_minutes);
  visit("keep", "Checkpoints that are kept", c.keep);
  visit("resume", "auto: go on where the run in the folder stopped; or a checkpoint's folder",
        c.resume);
  visit("eval_every", "Steps between evaluations; 0: once an epoch", c.eval_every);
  visit("early_stop", "Stop after so many evaluations without a better one; 0: never",
        c.early_stop);
  visit("log_every", "Steps between lines of metrics.jsonl", c.log_every);
  visit("trace", "Record this step, in trace.json and trace.svg; 0: none", c.trace);
  visit("time_limit", "Save and stop after so many minutes; 0: never", c.time_limit);
  visit("timeout", "Seconds that processes wait for one another", c.timeout);
}

}  // namespace pareprop::train
