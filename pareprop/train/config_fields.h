#pragma once

#include "pareprop/train/train_config.h"

namespace pareprop::train {

// The list of fields: calls visit(key, help, value) for each, in order. `Config` is TrainConfig or
// const TrainConfig.
template <typename Config, typename Visit>
void visit_fields(Config& c, Visit&& visit) {
  visit("model",
        "Network to train; 'pareprop models' lists all; none: that of --weights, else vit_tiny",
        c.model);
  visit("plain", "Train the ordinary, non-reversible network (modes stored, checkpoint and auto)",
        c.plain);
  visit("depth", "Number of blocks, or of each stage separated by commas; none: the model's",
        c.depth);
  visit("width", "Number of channels; none: the model's", c.width);
  visit("heads", "Heads of the attention, or of each stage separated by commas; none: the model's",
        c.heads);
  visit("mlp_ratio", "Width of the MLP as a multiple of --width; none: the model's", c.mlp_ratio);
  visit("patch", "Side of a patch in pixels, of ViT and Swin; none: the model's", c.patch);
  visit("window", "Side of Swin's windows in tokens; none: the model's", c.window);
  visit(
      "image_size",
      "Height and width of the images in pixels; none: the size of the data if the model can take "
      "it, else the model's size",
      c.image_size);
  visit("seq_len", "Tokens in a sequence; none: 128", c.seq_len);
  visit("positions",
        "Rows of a text model's table of positions, two of them for padding (none in BERT's); "
        "none: the model's",
        c.positions);
  visit("embeddings",
        "Rows of a text model's table of words; none: as many as the tokenizer has tokens",
        c.embeddings);
  visit("norm_eps", "eps of the norms; none: the model's", c.norm_eps);
  visit("no_qkv_bias", "Queries, keys and values have no bias", c.no_qkv_bias);
  visit("distillation",
        "Of DeiT, in an ordinary ViT: none, token (a second token beside the class token), or "
        "heads (that token has a head too)",
        c.distillation);
  visit("encoder",
        "Of a text model: norm-first, or with norms behind the sums, for ordinary networks only, "
        "roberta or bert; none: norm-first",
        c.encoder);
  visit("ending",
        "What follows the stacks of a reversible network reads of their streams: concat (both side "
        "by side), sum, mean, y1, y2, or sum-x (the sum minus the stack's input, which nearly "
        "gives what an ordinary network with the same weights gives); none: concat",
        c.ending);
  visit("class_token", "A reversible ViT has the class token and the head of an ordinary one",
        c.class_token);
  visit("dropout", "Dropout probability; none: the model's", c.dropout);
  visit("drop_path",
        "Drop-path probability of the last block; lower blocks have less; none: the model's",
        c.drop_path);
  visit("initial_std", "Standard deviation of the initial weights; 0: the model's, 0.02",
        c.initial_std);
  visit("weights",
        "Initial weights: a safetensors file, a folder of Hugging Face or timm, or that of a run",
        c.weights);

  visit("data",
        "Data set: digits, fashion-mnist, persuasion, synthetic, cifar10:PATH, cifar100:PATH, "
        "idx:PATH, folder:PATH or text:PATH",
        c.data);
  visit("tokenizer",
        "Path of a tokenizer.json, or of its folder; none: train a tokenizer on the text",
        c.tokenizer);
  visit("vocabulary", "Number of tokens of a newly trained tokenizer", c.vocabulary);
  visit("augment", "Augmentation; auto: what suits the images; none: no augmentation", c.augment);
  visit("mixup", "Alpha of mixup; 0: no mixup", c.mixup);
  visit("cutmix", "Alpha of CutMix; 0: no CutMix", c.cutmix);
  visit("mix_probability", "Probability that mixup or CutMix changes an image", c.mix_probability);
  visit("erase", "Probability of random erasing: a rectangle of noise in the image", c.erase);
  visit("label_smoothing", "Label smoothing: share of a label that is spread over all classes",
        c.label_smoothing);
  visit("workers", "Threads that prepare data; 0: the training thread prepares it", c.workers);
  visit("strict", "Stop with an error at an image that cannot be read, instead of leaving it out",
        c.strict);

  visit(
      "mode",
      "How activations are kept or recomputed: stored, checkpoint, reprop, pareprop, or auto (the "
      "planner chooses)",
      c.mode);
  visit("budget",
        "Bytes that all tensors of one process may take, such as 8GiB; none: the free memory minus "
        "a margin",
        c.budget);
  visit("allow",
        "What the plan may change to fit or to be faster, separated by commas: lean-state (keep "
        "the optimizer's state in bf16 or 8 bits), update-inside (step the optimizer inside the "
        "backward pass); none: the plan changes nothing but the rounding of sums",
        c.allow);
  visit("force", "Train even if the plan does not fit in memory", c.force);
  visit("device",
        "Where to compute: auto (an accelerator if there is one, else the CPU), cpu, cuda or "
        "cuda:N; processes of one machine take one device each",
        c.device);
  visit("precision", "Precision of the branches: fp32, bf16 or fp64", c.precision);
  visit("streams",
        "Arithmetic of the streams: float, exact (fixed point, recovered bit for bit), or "
        "auto (exact with bf16, else float)",
        c.streams);
  visit("exact", "The same as --streams exact", c.exact);
  visit("batch",
        "Samples in a batch of one process. Where memory is short, mode auto may compute the batch "
        "in equal parts",
        c.batch);
  visit("accumulate", "Gradient accumulation: batches in one step of the optimizer", c.accumulate);
  visit("steps", "Steps of the optimizer; 0: --epochs gives the number", c.steps);
  visit("epochs", "Passes over the data; used if --steps is 0", c.epochs);
  visit("seed", "Random seed for weights, order of samples, augmentation and dropout", c.seed);

  visit("optimizer", "Optimizer: adamw, sgd, or adafactor (which has almost no state)",
        c.optimizer);
  visit("optimizer_state",
        "Type of the optimizer's state: fp32, bf16 (half the memory) or 8bit (a quarter)",
        c.optimizer_state);
  visit("momentum", "Momentum of SGD; 0: none, and no state", c.momentum);
  visit("learning_rate", "Peak learning rate", c.learning_rate);
  visit("last_learning_rate", "Learning rate at the end", c.last_learning_rate);
  visit("warmup", "Share of the steps in which the learning rate rises to its peak", c.warmup);
  visit("decay", "How the learning rate falls after the warm-up: cosine, linear or constant",
        c.decay);
  visit("weight_decay", "Weight decay; biases, norms and position embeddings have none",
        c.weight_decay);
  visit("beta1", "beta1 of AdamW", c.beta1);
  visit("beta2", "beta2 of AdamW", c.beta2);
  visit("eps", "eps of AdamW", c.eps);
  visit("clip", "Gradient clipping: largest norm of all gradients together; 0: no clipping",
        c.clip);
  visit("update",
        "When the optimizer steps: after the backward pass, or inside it. Inside, the gradients "
        "of at most two blocks are in memory, and with --clip every backward pass runs twice",
        c.update);
  visit("shard",
        "What is divided among the processes: none, state (each process keeps the optimizer's "
        "state of its own share of the parameters), or gradients (each keeps the gradients of its "
        "share too)",
        c.shard);
  visit("ema",
        "Decay of the moving average of the weights, which is then used for validation; 0: no "
        "average",
        c.ema);

  visit("freeze",
        "Parameters that are not trained: patterns separated by commas, a * stands for any "
        "characters, as in patch_embed.*,blocks.0.*; !PATTERN takes some out again; none: all are "
        "trained",
        c.freeze);
  visit("layer_decay",
        "The learning rate of a block is the head's times this for each block above it and once "
        "more; embeddings have the least; 1: all have the same",
        c.layer_decay);
  visit("head_steps", "The first so many steps train the head only", c.head_steps);

  visit("out", "Folder of the run", c.out);
  visit("save_every",
        "Save a checkpoint every so many steps, in addition to those at each evaluation; 0: save "
        "only at the end",
        c.save_every);
  visit("save_minutes",
        "Save a checkpoint at least every so many minutes, unless --save-every is 0",
        c.save_minutes);
  visit("keep", "Number of checkpoints to keep; older ones are removed", c.keep);
  visit(
      "resume",
      "auto: resume from the newest checkpoint in the run's folder; or the folder of a checkpoint",
      c.resume);
  visit("eval_every", "Steps between evaluations on the validation data; 0: once per epoch",
        c.eval_every);
  visit("early_stop", "Stop after so many evaluations without a lower validation loss; 0: never",
        c.early_stop);
  visit("log_every", "Steps between lines in metrics.jsonl", c.log_every);
  visit("trace", "Number of the step to record in trace.json and trace.svg; 0: none", c.trace);
  visit("time_limit", "Save and stop after so many minutes; 0: no limit", c.time_limit);
  visit("timeout", "Seconds that a process waits for the other processes", c.timeout);
}

}  // namespace pareprop::train
