"""Weights of Hugging Face transformers and timm, saved by their own tools with random numbers: `pareprop eval` gives
their scores, and what `pareprop export` writes loads there again and gives the same. Networks are narrower and
shallower than those that their names stand for; PAREPROP_PYTHON_CASES=2 or more takes their widths, 10 or more their
depths too (minutes)."""

import copy
import json
import os
import re
import runpy
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from program_session import Session

import torch
from safetensors.torch import load_file, save_file

SESSION = Session(sys.argv.pop(1))
CASES = float(os.environ.get("PAREPROP_PYTHON_CASES", "1"))
WHOLE = CASES > 1
SLOWFAST = Path(__file__).resolve().parents[2] / "tools" / "convert_slowfast.py"
SCORES = 1e-4  # relative to the largest score

try:
    import transformers
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertForSequenceClassification,
        BertModel,
        DeiTConfig,
        DeiTForImageClassification,
        DeiTForImageClassificationWithTeacher,
        RobertaConfig,
        RobertaForMaskedLM,
        RobertaForSequenceClassification,
        RobertaPreLayerNormConfig,
        RobertaPreLayerNormForMaskedLM,
        RobertaPreLayerNormForSequenceClassification,
        SwinConfig,
        SwinForImageClassification,
        ViTConfig,
        ViTForImageClassification,
        ViTModel,
    )
    from transformers.utils import logging
except ImportError:
    print("transformers is not installed: skipped")
    sys.exit(77)

from timm_alone import timm  # after transformers, which must not see what timm is given instead of torchvision

logging.set_verbosity_error()
logging.disable_progress_bar()


def shaken(model, seed=1):
    """Away from the zeros and ones that many weights begin with."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


def unless_whole(**sizes):
    return {} if WHOLE else sizes


def depth(shallow, real=12):
    """Blocks of a network, or of each stage."""
    return real if CASES >= 10 else shallow


def encoder(heads=12):
    """Smaller sizes for transformers, with the same width for each head of a block."""
    return unless_whole(hidden_size=8 * heads, intermediate_size=32 * heads)


def setUpModule():
    unittest.addModuleCleanup(SESSION.end)


class Exchange(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def succeeds(self, command, *arguments):
        done = SESSION.run(command, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, command, *arguments):
        done = SESSION.run(command, *arguments)
        self.assertEqual(done.returncode, 2, done.stderr + done.stdout)
        return done.stderr

    def scores(self, inputs, *source):
        save_file(inputs, self.folder / "inputs")
        self.succeeds("eval", *source, "--input", self.folder / "inputs", "--scores", self.folder / "scores")
        return load_file(self.folder / "scores")["logits"]

    def same(self, got, expected, where):
        self.assertEqual(got.shape, expected.shape)
        error = ((got - expected).abs().max() / expected.abs().max()).item()
        print(f"{where}: {error:.1e}", flush=True)
        self.assertLessEqual(error, SCORES, where)

    def exported(self, weights, *more):
        out = self.folder / "exported"
        self.succeeds("export", "--weights", weights, "--out", out, *more)
        return out

    def image_case(self, model, size, where, channels=3):
        shaken(model)
        saved = self.folder / "saved"
        model.save_pretrained(saved)
        images = torch.randn(2, channels, size, size)
        with torch.no_grad():
            expected = model(images).logits
        self.same(self.scores({"pixel_values": images}, "--weights", saved), expected, where)
        again, report = type(model).from_pretrained(self.exported(saved), output_loading_info=True)
        self.assertFalse(any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report)
        with torch.no_grad():
            self.same(again.eval()(images).logits, expected, where + ", exported")
        return again


class HuggingFace(Exchange):
    def test_vit_base(self):
        labels = {i: f"kind {i}" for i in range(7)}
        again = self.image_case(ViTForImageClassification(ViTConfig(num_hidden_layers=depth(3), id2label=labels,
                                                                   **encoder())), 224, "ViT-B")
        self.assertEqual(again.config.id2label, labels)
        processor = json.loads((self.folder / "exported" / "preprocessor_config.json").read_text())
        self.assertEqual(processor["image_mean"], [0.5, 0.5, 0.5])
        self.assertEqual(processor["size"], {"height": 224, "width": 224})

    def test_vit_of_odd_settings(self):
        config = ViTConfig(hidden_size=60, num_hidden_layers=2, num_attention_heads=5, intermediate_size=77,
                           image_size=40, patch_size=8, num_channels=1, qkv_bias=False, layer_norm_eps=1e-3,
                           num_labels=3)
        self.image_case(ViTForImageClassification(config), 40, "ViT of odd settings", channels=1)

    def test_deit_small(self):
        sizes = dict(hidden_size=384, num_hidden_layers=depth(4), num_attention_heads=6, intermediate_size=1536) | encoder(6)
        self.image_case(DeiTForImageClassification(DeiTConfig(num_labels=11, **sizes)), 224, "DeiT-S")

    def test_deit_with_two_heads(self):
        sizes = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, image_size=32,
                     patch_size=8)
        self.image_case(DeiTForImageClassificationWithTeacher(DeiTConfig(num_labels=5, **sizes)), 32,
                        "DeiT with a teacher")

    def test_swin_tiny_of_odd_image_sizes(self):
        for size in (224, 250, 287):
            with self.subTest(size=size), tempfile.TemporaryDirectory() as inside:
                self.folder = Path(inside)
                config = SwinConfig(image_size=size, num_labels=9, depths=depth([2, 2, 2, 2], [2, 2, 6, 2]),
                                    **unless_whole(embed_dim=24))
                self.image_case(SwinForImageClassification(config), size, f"Swin-T, images of {size}")

    def text_case(self, kind, config):
        model = shaken(kind(config))
        saved = self.folder / "saved"
        model.save_pretrained(saved)
        ids = torch.randint(3, config.vocab_size, (3, 50))
        mask = torch.ones_like(ids)
        mask[1, 40:], mask[2, 20:] = 0, 0
        ids[mask == 0] = config.pad_token_id
        inputs = {"input_ids": ids, "attention_mask": mask}
        with torch.no_grad():
            expected = model(**inputs).logits
        seen = mask.bool() if expected.dim() == 3 else slice(None)
        self.same(self.scores(inputs, "--weights", saved)[seen], expected[seen], kind.__name__)
        again, report = kind.from_pretrained(self.exported(saved), output_loading_info=True)
        self.assertFalse(any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), report)
        with torch.no_grad():
            self.same(again.eval()(**inputs).logits[seen], expected[seen], kind.__name__ + ", exported")
        return again

    def test_roberta_of_an_odd_vocabulary(self):
        sizes = dict(vocab_size=1237, num_hidden_layers=depth(2, 6), max_position_embeddings=131) | encoder()
        self.text_case(RobertaPreLayerNormForMaskedLM, RobertaPreLayerNormConfig(**sizes))

    def test_roberta_with_norms_behind(self):
        sizes = dict(vocab_size=1237, num_hidden_layers=depth(3, 6), max_position_embeddings=131, layer_norm_eps=1e-5) | encoder()
        self.text_case(RobertaForMaskedLM, RobertaConfig(**sizes))

    def test_roberta_for_classes(self):
        sizes = dict(vocab_size=151, num_hidden_layers=2, max_position_embeddings=66, type_vocab_size=1) | encoder()
        labels = {0: "bad", 1: "so so", 2: "good"}
        self.text_case(RobertaPreLayerNormForSequenceClassification, RobertaPreLayerNormConfig(num_labels=5, **sizes))
        shutil.rmtree(self.folder / "saved")
        shutil.rmtree(self.folder / "exported")
        again = self.text_case(RobertaForSequenceClassification, RobertaConfig(id2label=labels, **sizes))
        self.assertEqual(again.config.id2label, labels)

    def test_bert(self):
        sizes = dict(vocab_size=311, num_hidden_layers=depth(3), max_position_embeddings=64, **encoder())
        self.text_case(BertForMaskedLM, BertConfig(**sizes))
        first = {"input_ids": torch.randint(3, 311, (2, 6)), "token_type_ids": torch.zeros(2, 6, dtype=torch.long)}
        self.scores(first, "--weights", self.folder / "saved")
        pairs = first | {"token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1]] * 2)}
        save_file(pairs, self.folder / "pairs")
        self.assertIn("networks here have one kind of token: expected token_type_ids of 0",
                      self.refused("eval", "--weights", self.folder / "saved", "--input", self.folder / "pairs",
                                   "--scores", self.folder / "none"))
        self.named_as_tensorflow_did()
        body = shaken(BertModel(BertConfig(**sizes)))
        body.save_pretrained(self.folder / "body")
        self.assertIn("has no head", self.refused("eval", "--weights", self.folder / "body", "--data", "persuasion"))

    def named_as_tensorflow_did(self):
        """The files of bert-base-uncased and others of its age."""
        file, ids = self.folder / "saved" / "model.safetensors", {"input_ids": torch.randint(3, 311, (2, 6))}
        expected = self.scores(ids, "--weights", self.folder / "saved")
        state = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
                 for name, value in load_file(file).items()}
        self.assertIn("bert.embeddings.LayerNorm.gamma", state)
        save_file(state, file, metadata={"format": "pt"})
        self.assertTrue(torch.equal(self.scores(ids, "--weights", self.folder / "saved"), expected))
        shutil.rmtree(self.folder / "exported")
        exported = load_file(self.exported(self.folder / "saved") / "model.safetensors")
        self.assertIn("bert.embeddings.LayerNorm.weight", exported)
        self.assertFalse([name for name in exported if name.endswith(("gamma", "beta"))])

    def test_bert_for_classes(self):
        sizes = dict(vocab_size=311, num_hidden_layers=2, max_position_embeddings=50, num_labels=4) | encoder()
        self.text_case(BertForSequenceClassification, BertConfig(**sizes))

    def test_shards_are_read_as_one(self):
        model = shaken(ViTForImageClassification(ViTConfig(num_hidden_layers=2, num_labels=4, **encoder())))
        model.save_pretrained(self.folder / "whole")
        model.save_pretrained(self.folder / "shards", max_shard_size="20MB" if WHOLE else "400KB")
        names = [path.name for path in (self.folder / "shards").glob("model-*.safetensors")]
        self.assertGreater(len(names), 2)
        images = {"pixel_values": torch.randn(1, 3, 224, 224)}
        whole = self.scores(images, "--weights", self.folder / "whole")
        self.assertTrue(torch.equal(self.scores(images, "--weights", self.folder / "shards"), whole))
        (self.folder / "shards" / names[0]).unlink()
        said = self.refused("eval", "--weights", self.folder / "shards", "--data", "digits")
        self.assertIn(f"the file '{names[0]}' is missing", said)

    def test_files_with_names_of_memory(self):
        model = shaken(ViTForImageClassification(ViTConfig(num_hidden_layers=1, num_labels=4, **encoder())))
        model.save_pretrained(self.folder / "saved")
        images = torch.randn(1, 3, 224, 224)
        state = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
        save_file(state, self.folder / "saved" / "model.safetensors")
        with torch.no_grad():
            self.same(self.scores({"pixel_values": images}, "--weights", self.folder / "saved"),
                      model(images).logits, "names of memory")


class ReversibleBlocks(torch.nn.Module):
    """What a reversible network makes of the blocks of an ordinary one."""

    def __init__(self, blocks, ending):
        super().__init__()
        self.f = [self.without(block, "mlp.fc2", "output.dense") for block in blocks]
        self.g = [self.without(block, "attention.o_proj", "attention.output.dense") for block in blocks]
        self.ending = ending

    @staticmethod
    def without(block, *ends):
        """The block without the branch whose last layer has one of these names."""
        block = copy.deepcopy(block)
        (last,) = [layer for name, layer in block.named_modules() if name in ends]
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        return block

    def forward(self, x, *others, **named):
        def branch(block, y):
            given = block(y, *others, **named)
            return (given[0] if isinstance(given, tuple) else given) - y

        y1 = y2 = x
        for f, g in zip(self.f, self.g):
            y1 = y1 + branch(f, y2)
            y2 = y2 + branch(g, y1)
        end = self.ending(x, y1, y2)
        return (end, None) if isinstance(self.f[0](x, *others, **named), tuple) else end


ENDINGS = {"sum-x": lambda x, y1, y2: y1 + y2 - x, "sum": lambda x, y1, y2: y1 + y2,
           "mean": lambda x, y1, y2: (y1 + y2) / 2, "y1": lambda x, y1, y2: y1, "y2": lambda x, y1, y2: y2}


class Convert(Exchange):
    def case(self, model, inputs, rows, **more):
        """The network that ReversibleBlocks make of `model`; `rows` are those of its lists of blocks."""
        shaken(model)
        saved = self.folder / "saved"
        model.save_pretrained(saved)
        for ending, end in ENDINGS.items():
            out = self.folder / ending
            usual = [] if ending == "sum-x" else ["--ending", ending]
            self.succeeds("convert", "--reversible", "--weights", saved, "--out", out, *usual)
            reversible = copy.deepcopy(model)
            for path in rows:
                owner, _, name = path.rpartition(".")
                blocks = reversible.get_submodule(path)
                setattr(reversible.get_submodule(owner), name, torch.nn.ModuleList([ReversibleBlocks(blocks, end)]))
            with torch.no_grad():
                expected, ordinary = reversible(**inputs).logits, model(**inputs).logits
            got = self.scores(inputs, "--run", out)
            self.same(got, expected, f"{type(model).__name__}, {ending}")
            self.assertGreater((expected - ordinary).abs().max() / expected.abs().max(), 10 * SCORES, ending)
        return saved

    def test_vit(self):
        for depth in (1, 3):
            with self.subTest(depth=depth), tempfile.TemporaryDirectory() as inside:
                self.folder = Path(inside)
                config = ViTConfig(hidden_size=48, num_hidden_layers=depth, num_attention_heads=3, intermediate_size=96,
                                   image_size=32, patch_size=8, num_labels=5)
                model, images = ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}
                if depth > 1:
                    self.case(model, images, ["vit.layers"])
                    continue
                # Of one block it is the ordinary network.
                shaken(model).save_pretrained(self.folder / "saved")
                self.succeeds("convert", "--reversible", "--weights", self.folder / "saved", "--out",
                              self.folder / "out")
                with torch.no_grad():
                    self.same(self.scores(images, "--run", self.folder / "out"), model(**images).logits, "one block")

    def test_swin(self):
        config = SwinConfig(image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
                            num_labels=5)
        self.case(SwinForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)},
                  ["swin.encoder.layers.0.blocks", "swin.encoder.layers.1.blocks"])

    def test_roberta(self):
        run, exported = self.folder / "run", self.folder / "saved"  # with a tokenizer
        self.succeeds("train", "--data", "persuasion", "--model", "roberta_base", "--plain", "--width", 48, "--heads", 4,
                      "--depth", 3, "--vocabulary", 300, "--steps", 1, "--batch", 2, "--seq-len", 16, "--out", run)
        self.succeeds("export", "--run", run, "--out", exported)
        model = RobertaPreLayerNormForMaskedLM.from_pretrained(exported)
        self.case(model, {"input_ids": torch.randint(3, 300, (2, 12))}, ["roberta_prelayernorm.encoder.layer"])


@unittest.skipIf(timm is None, "timm is not installed")
class Timm(Exchange):
    SWIN = unless_whole(embed_dim=24) | {"depths": depth((2, 2, 2, 2), (2, 2, 6, 2))}

    def case(self, name, size, merging_at_end=False, **arguments):
        from timm.models._hub import save_for_hf

        model = shaken(timm.create_model(name, pretrained=False, **arguments))
        saved = self.folder / "saved"
        save_for_hf(model, saved, safe_serialization=True)
        if merging_at_end:
            self.move_merging(saved / "model.safetensors")
        images = torch.randn(2, arguments.get("in_chans", 3), size, size)
        with torch.no_grad():
            expected = model(images)
        where = f"{name} {arguments or ''}"
        self.same(self.scores({"pixel_values": images}, "--weights", saved), expected, where)
        out = self.exported(saved, "--names", "timm")
        again = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
        with torch.no_grad():
            self.same(again(images), expected, where + ", exported")

    @staticmethod
    def move_merging(path):
        """The layers between stages where the official files have them, and the head."""
        state = {}
        for name, value in load_file(path).items():
            if ".downsample." in name:
                stage = int(name.split(".")[1])
                name = name.replace(f"layers.{stage}", f"layers.{stage - 1}")
            state[name.replace("head.fc", "head")] = value
        save_file(state, path)

    def test_vit_small(self):
        self.case("vit_small_patch16_224", 224, depth=depth(2))

    def test_vit_of_other_sizes(self):
        self.case("vit_tiny_patch16_224", 48, img_size=48, patch_size=8, depth=3, embed_dim=96, num_heads=4,
                  num_classes=5, in_chans=1)

    def test_deit_with_two_heads(self):
        self.case("deit_tiny_distilled_patch16_224", 224, num_classes=10, depth=depth(2))

    def test_swin_tiny(self):
        self.case("swin_tiny_patch4_window7_224", 224, num_classes=12, **self.SWIN)

    def test_swin_with_merging_at_the_end(self):
        self.case("swin_tiny_patch4_window7_224", 224, merging_at_end=True, **self.SWIN)

    def test_mvitv2_tiny(self):
        self.case("mvitv2_tiny", 224, num_classes=6)

    def slowfasts(self, model, images, *flags):
        """The same network as a checkpoint of SlowFast, converted."""
        state, first = {}, [0]  # blocks of the stages before
        for blocks in (stage.blocks for stage in getattr(model, "stages", [])):
            first.append(first[-1] + len(blocks))
        for name, value in shaken(model).state_dict().items():
            name = re.sub(r"stages\.(\d+)\.blocks\.(\d+)", lambda at: f"blocks.{first[int(at[1])] + int(at[2])}", name)
            name = re.sub(r"shortcut_proj_(attn|mlp)", "proj", name)
            state[re.sub(r"^head(\.fc)?\.", "head.projection.", name)] = value
        checkpoint, weights = self.folder / "c.pyth", self.folder / "w.safetensors"
        torch.save({"model_state": state}, checkpoint)
        with mock.patch.object(sys, "argv", [str(SLOWFAST), str(checkpoint), str(weights)]):
            runpy.run_path(str(SLOWFAST), run_name="__main__")
        with torch.no_grad():
            expected = model(images)
        self.same(self.scores({"pixel_values": images}, "--weights", weights, *flags), expected, "through SlowFast")

    def test_plain_checkpoints_of_slowfast(self):
        vit = timm.create_model("vit_tiny_patch16_224", img_size=48, num_classes=5)
        self.slowfasts(vit, torch.randn(2, 3, 48, 48))
        images = torch.randn(2, 3, 64, 64)
        self.slowfasts(timm.create_model("mvitv2_tiny", img_size=64, num_classes=5), images,
                       "--image-size", 64)
        from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg

        sizes = MultiScaleVitCfg(depths=(2, 3, 2, 1), embed_dim=48, num_heads=2, expand_attn=False)
        wide_mlps = MultiScaleVit(sizes, img_size=64, num_classes=5)
        self.slowfasts(wide_mlps, images, "--model", "mvit_large", "--plain", "--image-size", 64)

    def test_a_network_that_is_not_supported_is_named_with_the_nearest(self):
        from timm.models._hub import save_for_hf

        save_for_hf(timm.create_model("swinv2_tiny_window8_256", embed_dim=24, depths=(1, 1, 1, 1)), self.folder / "saved", safe_serialization=True)
        said = self.refused("eval", "--weights", self.folder / "saved", "--data", "digits")
        self.assertIn("swinv2_tiny_window8_256 is not supported; the nearest that is: swin_tiny", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
