"""A Vision Transformer of Hugging Face, fine-tuned with their Trainer within a budget that stored training exceeds.

    hugging_face_vit.py [--small]    --small: a network of four layers instead of ViT-B

Exit code 1: the losses were others, or the budget was not kept.
"""

import argparse
import sys
import tempfile

import pareprop

pareprop.memory.install()  # only to measure: it counts the bytes of tensors

import torch  # noqa: E402
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--small", action="store_true")
small = parser.parse_args().small
config = ViTConfig(num_labels=10)
if small:
    config = ViTConfig(
        hidden_size=96, num_hidden_layers=4, num_attention_heads=3, intermediate_size=384, image_size=96, num_labels=10
    )
torch.manual_seed(0)
images = [{"pixel_values": torch.randn(3, config.image_size, config.image_size), "labels": i % 10} for i in range(24)]
sample = {"pixel_values": torch.stack([row["pixel_values"] for row in images[:8]]), "labels": torch.arange(8)}
ahead = sum(tensor.nbytes for tensor in sample.values())  # the Trainer fetches a batch while it trains on another


def fine_tune(budget=None):
    """The losses of a few steps, and the peak of the bytes of weights, gradients, optimizer and activations."""
    torch.manual_seed(1)
    before = pareprop.memory.usage().live
    model = ViTForImageClassification(config)
    if budget is not None:
        print(pareprop.fit(model.train(), sample, budget - ahead))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=8, max_steps=3, logging_steps=1, report_to=[], disable_tqdm=True,
            save_strategy="no", use_cpu=True, learning_rate=1e-4, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=images)
        pareprop.memory.reset_peaks()
        trainer.train()
    peak = pareprop.memory.usage().peak - before
    return [row["loss"] for row in trainer.state.log_history if "loss" in row], peak


stored, most = fine_tune()
loose = pareprop.fit(ViTForImageClassification(config).train(), sample, "1TiB")
budget = (loose.stored_peak_bytes + loose.smallest_peak_bytes) // 2 + ahead
within, least = fine_tune(budget)
print(f"losses {stored} stored, {within} within the budget")
print(f"peak {most >> 20} MiB stored, {least >> 20} MiB with a budget of {budget >> 20} MiB")
same, kept = stored == within, least <= budget < most
print("the same losses" if same else "other losses", "within the budget" if kept else "outside of the budget")
sys.exit(0 if same and kept else 1)
