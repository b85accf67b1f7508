"""`pareprop` with weights of other programs: what it adapts, says and refuses. Networks are small; that they give the
scores of their own libraries is tested in exchange_program_test.py."""

import contextlib
import importlib.util
import io
import json
import os
import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from program_session import Session

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

SESSION = Session(sys.argv.pop(1))
TOOL = Path(__file__).resolve().parents[2] / "tools" / "convert_pickle.py"

try:
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForMaskedLM,
        RobertaConfig,
        RobertaForMaskedLM,
        RobertaForSequenceClassification,
        RobertaPreLayerNormConfig,
        RobertaPreLayerNormForMaskedLM,
        RobertaPreLayerNormModel,
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

logging.set_verbosity_error()
logging.disable_progress_bar()

TWO_STEPS = ["--steps", "2", "--batch", "2", "--mode", "stored", "--augment", "none"]
TEXT_SIZES = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=300,
                  max_position_embeddings=66)
TEXT = ["--data", "persuasion", "--steps", "2", "--batch", "2", "--seq-len", "16"]


def setUpModule():
    unittest.addModuleCleanup(SESSION.end)


def convert(*files):
    """The tool, in this process, which has torch already."""
    specification = importlib.util.spec_from_file_location("convert_pickle", TOOL)
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    with mock.patch.object(sys, "argv", [str(TOOL), *map(str, files)]), contextlib.redirect_stdout(io.StringIO()):
        tool.main()


def vit(**changes):
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32,
                 patch_size=8, num_labels=10)
    return ViTForImageClassification(ViTConfig(**sizes | changes))


class Weights(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.saved = self.folder / "saved"
        torch.manual_seed(3)

    def save(self, model):
        model.save_pretrained(self.saved)
        return self.saved

    def save_with_tokenizer(self, model):
        tokenized = self.folder / "tokenized"
        self.succeeds("train", *TEXT, "--model", "roberta_base", "--plain", "--width", "48", "--heads", "4", "--depth",
                      "1", "--vocabulary", "300", "--out", tokenized)
        shutil.copytree(tokenized / "tokenizer", self.saved)
        return self.save(model)

    def photos(self, classes=("cat", "dog", "owl"), mode="RGB", side=24):
        chance = random.Random(5)
        for half in ("train", "val"):
            for name in classes:
                inside = self.folder / "photos" / half / name
                inside.mkdir(parents=True)
                for i in range(4):
                    pixels = chance.randbytes(side * side * len(mode))
                    Image.frombytes(mode, (side, side), pixels).save(inside / f"{i}.png")
        return self.folder / "photos"

    def succeeds(self, command, *arguments):
        done = SESSION.run(command, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, command, *arguments, code=2):
        before = sorted(self.folder.iterdir())
        done = SESSION.run(command, *arguments)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        self.assertEqual(sorted(self.folder.iterdir()), before, "nothing was written")
        return done.stderr

    def trains(self, *arguments):
        """What was said, of a run in the folder `run`."""
        done = self.succeeds("train", *TWO_STEPS, *arguments, "--out", self.folder / "run")
        self.succeeds("eval", "--run", self.folder / "run")  # its config.json says all
        return done.stderr

    def change_config(self, **changes):
        path = self.saved / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def change_tensors(self, change):
        path = self.saved / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})


class Adapted(Weights):
    def test_classes_channels_and_image_size(self):
        self.save(vit(image_size=224, patch_size=16, num_labels=1000))
        photos = self.photos(mode="L")
        said = self.trains("--weights", self.saved, "--data", f"folder:{photos}", "--image-size", "384")
        self.assertIn("with the names of Hugging Face: a plain vit_base", said)
        self.assertIn("adapted: head for 1000 classes replaced by a new one for 3, made from the seed", said)
        self.assertIn("adapted: positions of 14 x 14 patches resampled to 24 x 24", said)
        config = json.loads((self.folder / "run" / "config.json").read_text())
        wanted = {"model": "vit_base", "plain": True, "depth": [2], "width": 32, "heads": [2], "image_size": 384,
                  "norm_eps": 1e-12}
        self.assertEqual({key: config[key] for key in wanted}, wanted)
        classes = json.loads((self.folder / "run" / "classes.json").read_text())
        self.assertEqual(classes["classes"], ["cat", "dog", "owl"])
        self.assertEqual(classes["centre_share"], 1.0)  # as of ViT's processor, and in eval --weights

    def test_grey_images(self):
        self.save(vit(image_size=32))
        said = self.trains("--weights", self.saved, "--data", "digits", "--image-size", "64")
        self.assertIn("adapted: patch weights of 3 colours summed for grey images", said)
        self.assertIn("adapted: positions of 4 x 4 patches resampled to 8 x 8", said)
        self.assertNotIn("head", said)
        self.save(vit(image_size=32, num_channels=1))
        photos = self.photos()
        shutil.rmtree(self.folder / "run")
        said = self.trains("--weights", self.saved, "--data", f"folder:{photos}")
        self.assertIn("adapted: patch weights for grey images divided among 3 colours", said)

    def test_windows_of_swin(self):
        config = SwinConfig(image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
                            num_labels=10, drop_path_rate=0.0)
        self.save(SwinForImageClassification(config))
        said = self.trains("--weights", self.saved, "--data", "digits", "--image-size", "64", "--window", "8")
        self.assertIn("adapted: tables of relative positions for windows of 4 x 4 resampled to 8 x 8", said)

    def test_a_body_without_a_head_gets_one(self):
        self.save(ViTModel(vit().config))
        said = self.trains("--weights", self.saved, "--data", "digits")
        self.assertIn("adapted: no head in the file: a new one is made from the seed", said)
        self.assertIn("has no head that gives scores", self.refused("eval", "--weights", self.saved, "--data", "digits"))

    def test_a_run_and_what_is_exported_of_it(self):
        run_folder, out = self.folder / "run", self.folder / "out"
        photos = self.photos()
        self.trains("--model", "vit_cifar", "--plain", "--image-size", "32", "--data", f"folder:{photos}")
        again = self.succeeds("train", *TWO_STEPS, "--weights", run_folder, "--data", "digits", "--out",
                              self.folder / "again").stderr
        self.assertIn("with the names of pareprop: a plain vit_cifar", again)
        self.assertNotIn("shapes do not tell", again)
        self.assertIn("head for 3 classes replaced by a new one for 10", again)

        found = [json.loads(self.succeeds("eval", "--run", run_folder, "--json", "-").stdout)]
        for names in ("hugging-face", "timm", "own"):
            self.succeeds("export", "--run", run_folder, "--out", out / names, "--names", names)
            source = ["--run", out / names] if names == "own" else ["--weights", out / names]
            found.append(json.loads(self.succeeds("eval", *source, "--data", f"folder:{photos}", "--json",
                                                  "-").stdout))
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["hugging-face", "own", "timm"])
        for key in ("loss", "accuracy", "rows"):
            self.assertEqual(len({each[key] for each in found}), 1, found)
        loaded = ViTForImageClassification.from_pretrained(out / "hugging-face")
        self.assertEqual(loaded.config.id2label, {0: "cat", 1: "dog", 2: "owl"})

    def test_files_of_ours_without_their_run(self):
        file, out = self.folder / "alone.safetensors", self.folder / "out"
        no_name = ["--width", "64"]  # no network has this size
        model = ["--model", "vit_cifar"]
        for flags, needed in (["--plain"], []), (["--ending", "sum", "--class-token"], ["--ending", "sum"]), (
                ["--plain", *no_name, "--norm-eps", "0.5"], [*model, "--norm-eps", "0.5"]), (no_name, model):
            with self.subTest(flags=flags):
                self.trains(*model, *flags, "--data", "digits")
                shutil.copy(self.folder / "run" / "best.safetensors", file)
                if no_name[0] in flags:
                    self.assertIn("do not tell their network: name it", self.refused(
                        "eval", "--weights", file, "--data", "digits"))
                source = ["--weights", file, *needed]
                losses = [json.loads(self.succeeds("eval", *each, "--json", "-").stdout)["loss"]
                          for each in (["--run", self.folder / "run"], [*source, "--data", "digits"])]
                self.assertEqual(*losses)
                self.assertIn("no file tells how images were normalised", self.succeeds(
                    "export", *source, "--names", "own", "--out", out).stderr)
                shape = json.loads((out / "classes.json").read_text())
                self.assertEqual((shape["image_size"], shape["channels"]), (8, 1))
                if flags == ["--plain"]:
                    self.succeeds("predict", *source, self.photos() / "val")
                    self.succeeds("convert", "--reversible", *source, "--out", self.folder / "converted")
                # Training needs to know as much, not more.
                shutil.rmtree(out)
                self.succeeds("train", *TWO_STEPS, *source, "--data", "digits", "--out", out)
                shutil.rmtree(out)
                shutil.rmtree(self.folder / "run")
        self.assertIn("--model requires --weights", self.refused("eval", "--model", "vit_cifar"))
        self.assertIn("--plain: the weights in", self.refused(
            "eval", "--weights", file, "--model", "vit_cifar", "--plain", "--data", "digits"))

    def test_a_resumed_run_does_not_need_its_first_weights(self):
        self.save(vit())
        common = ["--steps", "4", "--batch", "2", "--mode", "stored", "--data", "digits"]
        whole, half = self.folder / "whole", self.folder / "half"
        self.succeeds("train", *common, "--weights", self.saved, "--out", whole)
        self.succeeds("train", *common, "--weights", self.saved, "--out", half, "--time-limit", "0.00001")
        shutil.rmtree(self.saved)
        self.succeeds("train", "--out", half, "--resume", "auto", "--time-limit", "0")
        self.assertEqual(load_file(half / "model.safetensors").keys(), load_file(whole / "model.safetensors").keys())
        for name, tensor in load_file(whole / "model.safetensors").items():
            self.assertTrue(torch.equal(load_file(half / "model.safetensors")[name], tensor), name)

    def test_text_goes_to_transformers_and_back(self):
        run_folder, out = self.folder / "text", self.folder / "out"
        self.succeeds("train", *TEXT, "--model", "roberta_base", "--plain", "--width", "48", "--heads", "4", "--depth",
                      "1", "--vocabulary", "300", "--out", run_folder)
        self.succeeds("export", "--run", run_folder, "--out", out)
        RobertaPreLayerNormForMaskedLM.from_pretrained(out)
        tokens = AutoTokenizer.from_pretrained(out)("Anne and <mask>.").input_ids
        self.assertIn(AutoTokenizer.from_pretrained(out).mask_token_id, tokens)
        found = [json.loads(self.succeeds("eval", *source, "--json", "-").stdout)["loss"]
                 for source in (["--run", run_folder], ["--weights", out, "--data", "persuasion"])]
        self.assertAlmostEqual(*found, places=1)  # by sequences of other lengths
        self.succeeds("predict", "--weights", run_folder, "Anne <mask>.")
        said = self.succeeds("train", *TEXT, "--weights", out, "--seq-len", "600", "--out", self.folder / "long").stderr
        self.assertIn("adapted: positions of 512 tokens resampled to 600", said)
        (out / "tokenizer.json").unlink()
        (out / "vocab.json").unlink()
        self.assertIn("--tokenizer: ", self.refused("train", *TEXT, "--weights", out, "--out", self.folder / "none"))

    def test_images_are_classified_with_the_labels_of_the_weights(self):
        self.save(vit(id2label={0: "owl", 1: "cat", 2: "dog"}, num_labels=3))
        photos = self.photos()
        guessed = json.loads(self.succeeds("predict", "--weights", self.saved, photos / "val", "--json", "-").stdout)
        self.assertEqual(len(guessed["rows"]), 12)
        self.assertEqual({guess["name"] for guess in guessed["rows"][0]["guesses"]}, {"owl", "cat", "dog"})
        # As many right as predictions say, in whatever order the folder has the classes.
        right = sum(row["guesses"][0]["name"] == Path(row["input"]).parent.name for row in guessed["rows"])
        found = json.loads(self.succeeds("eval", "--weights", self.saved, "--data", f"folder:{photos}", "--json",
                                         "-").stdout)
        self.assertAlmostEqual(found["accuracy"], right / 12)
        (self.saved / "preprocessor_config.json").write_text(json.dumps({"do_center_crop": True, "crop_pct": 0.5,
                                                                         "crop_size": 16, "size": 32}))
        said = self.trains("--weights", self.saved, "--data", f"folder:{photos}")
        self.assertIn("adapted: classes put in the order of the data", said)
        self.assertEqual(json.loads((self.folder / "run" / "classes.json").read_text())["centre_share"], 0.5)


class Reversible(Weights):
    """That they give the right scores is tested in exchange_program_test.py."""

    def converted(self, *source):
        out = self.folder / "converted"
        self.succeeds("convert", "--reversible", *source, "--out", out)
        return out

    def config(self, folder):
        return json.loads((folder / "config.json").read_text())

    def test_a_converted_network_is_trained_on(self):
        self.save(vit(num_labels=3, id2label={0: "owl", 1: "cat", 2: "dog"}))
        converted = self.converted("--weights", self.saved)
        wanted = {"model": "vit_base", "plain": False, "ending": "sum-x", "class_token": True, "depth": [2]}
        self.assertEqual(wanted, {key: self.config(converted)[key] for key in wanted})
        photos = self.photos()
        said = self.trains("--weights", converted, "--data", f"folder:{photos}", "--mode", "pareprop", "--image-size",
                           "64")
        self.assertIn("with the names of pareprop: a reversible vit_base", said)
        self.assertIn("adapted: positions of 4 x 4 patches resampled to 8 x 8", said)
        self.assertIn("adapted: classes put in the order of the data", said)
        self.assertEqual(wanted, {key: self.config(self.folder / "run")[key] for key in wanted})
        message = self.refused("train", "--weights", converted, "--ending", "mean", "--data", "digits", "--out",
                               self.folder / "none")
        self.assertIn("--ending: got mean, but the weights in", message)

    def test_a_body_is_converted_with_a_new_head(self):
        said = "adapted: no head in the file: a new one is made from the seed"
        self.save(ViTModel(vit().config))
        first = self.converted("--weights", self.saved, "--classes", "3")
        names = json.loads((first / "classes.json").read_text())["classes"]
        self.assertEqual(names, ["class 0", "class 1", "class 2"])
        head = load_file(first / "model.safetensors")["head.weight"]
        self.assertGreater(head.abs().max(), 0)
        other = self.folder / "other"
        self.assertIn(said, self.succeeds("convert", "--reversible", "--weights", self.saved, "--classes", "3",
                                          "--seed", "1", "--out", other).stderr)
        self.assertFalse(torch.equal(load_file(other / "model.safetensors")["head.weight"], head))
        self.trains("--weights", first, "--data", f"folder:{self.photos()}")
        # Instead of one for other classes, which may have had several at once.
        self.save(vit(problem_type="multi_label_classification"))
        shutil.rmtree(other)
        self.assertIn("head for 10 classes replaced by a new one for 3", self.succeeds(
            "convert", "--reversible", "--weights", self.saved, "--classes", "3", "--out", other).stderr)
        shutil.rmtree(other)
        shutil.rmtree(self.saved)
        self.save_with_tokenizer(RobertaPreLayerNormModel(RobertaPreLayerNormConfig(**TEXT_SIZES)))
        self.assertIn(said, self.succeeds("convert", "--reversible", "--weights", self.saved, "--out", other).stderr)

    def test_a_run_is_converted(self):
        self.trains("--model", "swin_cifar", "--plain", "--width", "24", "--heads", "2", "--data", "digits")
        converted = self.converted("--run", self.folder / "run")
        self.assertFalse(self.config(converted)["class_token"])
        self.succeeds("eval", "--run", converted)
        shutil.rmtree(self.folder / "run")
        self.trains("--weights", converted, "--data", "digits", "--mode", "reprop")
        self.assertIn("is reversible already", self.refused("convert", "--reversible", "--run", converted, "--out",
                                                            self.folder / "again"))

    def test_text_of_few_positions(self):
        self.save_with_tokenizer(RobertaPreLayerNormForMaskedLM(RobertaPreLayerNormConfig(**TEXT_SIZES)))
        converted = self.converted("--weights", self.saved)
        self.succeeds("predict", "--run", converted, "Anne <mask>.")
        self.assertEqual(self.config(converted)["seq_len"], 64)

    def test_networks_with_an_ending_are_trained_resumed_and_used(self):
        common = ["--steps", "4", "--batch", "2", "--data", "digits", "--model", "vit_cifar", "--image-size", "32",
                  "--class-token", "--ending", "sum-x", "--distillation", "heads", "--mode", "pareprop", "--exact"]
        whole, half = self.folder / "whole", self.folder / "half"
        self.succeeds("train", *common, "--out", whole)
        self.succeeds("train", *common, "--out", half, "--time-limit", "0.00001")
        self.succeeds("train", "--out", half, "--resume", "auto", "--time-limit", "0")
        state = load_file(whole / "model.safetensors")
        self.assertIn("dist_token", state)
        for name, tensor in state.items():
            self.assertTrue(torch.equal(load_file(half / "model.safetensors")[name], tensor), name)
        self.succeeds("eval", "--run", whole)
        self.succeeds("export", "--run", whole, "--out", self.folder / "own", "--names", "own")
        self.assertEqual(self.config(self.folder / "own")["ending"], "sum-x")
        self.assertIn("--names own", self.refused("export", "--run", whole, "--out", self.folder / "none"))

    def test_what_cannot_be_converted(self):
        self.save(vit())
        out = ["--out", self.folder / "none"]

        def message(*arguments):
            return self.refused("convert", *arguments, *out)

        weights = ["--weights", self.saved]
        self.assertIn("--reversible: expected it", message(*weights))
        self.assertIn("the ending concat is twice as wide", message("--reversible", *weights, "--ending", "concat"))
        self.assertIn("--ending: expected concat, sum, mean, y1, y2 or sum-x, got 'both'",
                      message("--reversible", *weights, "--ending", "both"))
        self.assertIn("not an empty folder", self.refused("convert", "--reversible", *weights, "--out", self.saved))
        self.assertIn("No such file", self.refused("convert", "--reversible", "--weights", self.folder / "no", *out, code=1))
        self.save(ViTModel(vit().config))
        self.assertIn("has no head that gives scores: say for how many classes it gets a new one",
                      message("--reversible", *weights))
        self.assertIn("--classes: expected 1 or more", message("--reversible", *weights, "--classes", "-1"))
        self.assertIn("--classes requires --weights", message("--reversible", "--run", self.saved, "--classes", "3"))
        sizes = dict(hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96, vocab_size=300)
        self.save(RobertaPreLayerNormForMaskedLM(RobertaPreLayerNormConfig(**sizes)))
        self.assertIn("there is no tokenizer beside", message("--reversible", *weights))
        # Swin pads such images, which its reversible counterpart does not.
        config = SwinConfig(image_size=33, patch_size=2, embed_dim=24, depths=[1, 1], num_heads=[2, 4], window_size=4)
        self.save(SwinForImageClassification(config))
        self.assertIn("image size 33 is not a multiple of the patch size 2", message("--reversible", *weights))
        self.trains("--model", "mvit_cifar", "--plain", "--data", "digits")
        self.assertIn("MViT cannot be made reversible", message("--reversible", "--run", self.folder / "run"))

    def test_endings_that_a_network_does_not_have(self):
        def message(*arguments):
            return self.refused("train", "--data", "digits", "--out", self.folder / "none", *arguments)

        self.assertIn("the ordinary vit has one stream: --ending is for reversible networks",
                      message("--model", "vit_digits", "--plain", "--ending", "sum"))
        self.assertIn("it has no other ending than concat", message("--model", "mvit_cifar", "--ending", "sum"))
        self.assertIn("it has no class token", message("--model", "swin_cifar", "--class-token"))
        self.assertIn("--ending: expected concat", message("--model", "vit_digits", "--ending", "add"))


class NormsBehind(Weights):
    """RoBERTa and BERT as they were published. Their scores are tested in exchange_program_test.py."""

    def test_roberta_is_trained_on_and_exported(self):
        self.save_with_tokenizer(RobertaForMaskedLM(RobertaConfig(**TEXT_SIZES)))
        run_folder, out = self.folder / "run", self.folder / "out"
        said = self.succeeds("train", *TEXT, "--weights", self.saved, "--mode", "checkpoint", "--out", run_folder).stderr
        self.assertIn("with the names of Hugging Face: a plain roberta_base", said)
        self.assertEqual(json.loads((run_folder / "config.json").read_text())["encoder"], "roberta")
        self.succeeds("export", "--run", run_folder, "--out", out)
        RobertaForMaskedLM.from_pretrained(out)
        self.succeeds("train", *TEXT, "--weights", out, "--freeze", "embeddings.*", "--layer-decay", "0.8", "--out",
                      self.folder / "again")
        self.succeeds("predict", "--weights", out, "Anne <mask>.")
        for mode in ("pareprop", "reprop"):
            message = self.refused("train", *TEXT, "--weights", self.saved, "--mode", mode, "--out", self.folder / "no")
            self.assertIn("a network with norms behind its sums cannot be trained with policy reverse", message)
            self.assertIn("Use mode stored, checkpoint or auto", message)
            self.assertIn("such a network cannot be made reversible", message)
        message = self.refused("convert", "--reversible", "--weights", self.saved, "--out", self.folder / "no")
        self.assertIn("an encoder with norms behind its sums cannot be reversible", message)
        message = self.refused("train", *TEXT, "--model", "roberta_base", "--encoder", "roberta", "--out",
                               self.folder / "no")
        self.assertIn("such an encoder cannot be reversible", message)

    def test_classes_of_texts(self):
        labels = {0: "bad", 1: "good"}
        self.save_with_tokenizer(RobertaForSequenceClassification(RobertaConfig(id2label=labels, **TEXT_SIZES)))
        guessed = json.loads(self.succeeds("predict", "--weights", self.saved, "Anne was pleased.", "--json",
                                           "-").stdout)
        self.assertEqual({guess["name"] for guess in guessed["rows"][0]["guesses"]}, {"bad", "good"})
        self.assertIn("give classes of whole texts", self.refused("eval", "--weights", self.saved, "--data",
                                                                  "persuasion"))
        out = ["--out", self.folder / "none"]
        self.assertIn("gives classes of whole texts", self.refused("export", "--weights", self.saved, "--names", "own",
                                                                   *out))
        self.save(RobertaForSequenceClassification(RobertaConfig(num_labels=2, **TEXT_SIZES)))
        shown = self.succeeds("predict", "--weights", self.saved, "Anne was pleased.").stdout
        self.assertIn(" class 1 ", shown)
        # Its body learns to guess words with a head of its own.
        said = self.succeeds("train", *TEXT, "--weights", self.saved, "--out", self.folder / "run").stderr
        self.assertIn("adapted: no head in the file: a new one is made from the seed", said)

    def test_heads_that_choose_no_class(self):
        one_class = {"num_labels": 2, "problem_type": "single_label_classification"}
        self.save_with_tokenizer(RobertaForSequenceClassification(RobertaConfig(**TEXT_SIZES, **one_class)))
        text = ["--weights", self.saved, "Anne was pleased."]
        self.succeeds("predict", *text)
        for changes in ({"num_labels": 1}, {"num_labels": 2, "problem_type": "regression"},
                        {"num_labels": 2, "problem_type": "multi_label_classification"}):
            with self.subTest(changes=changes):
                self.save(RobertaForSequenceClassification(RobertaConfig(**TEXT_SIZES, **changes)))
                self.assertIn("expected those of a network that chooses one class",
                              self.refused("predict", *text))
                self.succeeds("export", "--weights", self.saved, "--out", self.folder / "out")
                self.assertEqual(RobertaConfig.from_pretrained(self.folder / "out").problem_type,
                                 changes.get("problem_type"))
                shutil.rmtree(self.folder / "out")

    def test_several_classes_of_images_at_once(self):
        self.save(vit(problem_type="multi_label_classification"))
        for command, *arguments in (("eval", "--data", "digits"),
                                    ("export", "--names", "own", "--out", self.folder / "none"),
                                    ("convert", "--reversible", "--out", self.folder / "none")):
            self.assertIn("expected those of a network that chooses one class",
                          self.refused(command, "--weights", self.saved, *arguments))
        out = self.folder / "out"
        self.succeeds("export", "--weights", self.saved, "--out", out)
        self.assertEqual(ViTConfig.from_pretrained(out).problem_type, "multi_label_classification")
        self.trains("--weights", out, "--data", "digits")  # to choose one
        shutil.rmtree(out)
        self.succeeds("export", "--run", self.folder / "run", "--out", out)
        self.assertIsNone(ViTConfig.from_pretrained(out).problem_type)

    def test_what_is_refused(self):
        self.save(BertForMaskedLM(BertConfig(**TEXT_SIZES)))
        (self.saved / "tokenizer.json").write_text("{}")  # of an algorithm that is not read
        why = "BERT's tokenizers (WordPiece) are not read here: give token ids to eval --input"
        out = ["--out", self.folder / "none"]
        self.assertIn(why, self.refused("eval", "--weights", self.saved, "--data", "persuasion"))
        self.assertIn(why, self.refused("predict", "--weights", self.saved, "Anne <mask>."))
        self.assertIn(why, self.refused("export", "--weights", self.saved, "--names", "own", *out))
        self.assertIn("no tokenizer was written: " + why, self.succeeds("export", "--weights", self.saved, "--out",
                                                                        self.folder / "out").stderr)
        self.assertIn("--encoder: BERT's tokenizers (WordPiece) are not read here",
                      self.refused("train", *TEXT, "--weights", self.saved, "--tokenizer", self.saved, *out))
        for change, said in [
            ({"model_type": "roberta"}, "roberta contradicts the weights"),
            ({"hidden_size": 64}, "hidden_size 64, but"),
            ({"pad_token_id": 1}, "pad_token_id: expected 0"),
            ({"position_embedding_type": "relative_key"}, "networks here have absolute ones"),
            ({"is_decoder": True}, "networks here are encoders"),
            ({"hidden_act": "relu"}, "networks here have gelu"),
        ]:
            with self.subTest(change=change):
                self.save(BertForMaskedLM(BertConfig(**TEXT_SIZES)))
                self.change_config(**change)
                self.assertIn(said, self.refused("eval", "--weights", self.saved, "--data", "persuasion"))


class Refused(Weights):
    def evaluates(self, weights=None):
        return self.refused("eval", "--weights", weights or self.saved, "--data", "digits")

    def test_pickles_name_the_converter(self):
        model = vit()
        self.save(model)
        for name in ("pytorch_model.bin", "model.pth", "weights", "old"):
            torch.save(model.state_dict(), self.folder / name, _use_new_zipfile_serialization=name != "old")
            self.assertIn("python -m pareprop.convert_pickle FILE", self.evaluates(self.folder / name))
        (self.saved / "model.safetensors").unlink()
        shutil.copy(self.folder / "pytorch_model.bin", self.saved)
        self.assertIn("pytorch_model.bin is a pickle", self.evaluates())
        convert(self.saved / "pytorch_model.bin", self.saved / "model.safetensors")
        self.succeeds("eval", "--weights", self.saved, "--data", "digits")

    def test_pickles_with_code_are_not_converted(self):
        class Code:
            def __reduce__(self):
                return os.mkdir, (str(path / "made"),)

        path = self.folder
        torch.save({"weight": Code()}, path / "code.bin")
        with self.assertRaisesRegex(SystemExit, "not a file that torch reads safely"):
            convert(path / "code.bin", path / "out")
        self.assertEqual([each.name for each in path.iterdir()], ["code.bin"])

    def test_a_config_that_contradicts_its_weights(self):
        self.save(vit())
        for change, said in [
            ({"hidden_size": 64}, "hidden_size 64, but"),
            ({"num_hidden_layers": 3}, "num_hidden_layers 3, but"),
            ({"intermediate_size": 65}, "intermediate_size"),
            ({"patch_size": 4}, "patch_size 4, but"),
            ({"image_size": 64}, "image_size 64, but"),
            ({"num_channels": 1}, "num_channels 1, but"),
            ({"qkv_bias": False}, "qkv_bias false, but"),
            ({"model_type": "swin"}, "swin contradicts the weights"),
            ({"model_type": "deit"}, "deit contradicts the weights"),
            ({"hidden_dropout_prob": 2.0}, "hidden_dropout_prob: expected 0 or more and less than 1; nothing was loaded"),
        ]:
            with self.subTest(change=change):
                self.save(vit())
                self.change_config(**change)
                message = self.evaluates()
                self.assertIn(said, message)
                self.assertIn(str(self.saved / "config.json"), message)
                self.assertIn("nothing was loaded", message)

    def test_another_dropout_of_attention_is_said(self):
        self.save(vit(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))
        said = "attention_probs_dropout_prob is 0.3: attention has the dropout of the rest here, 0.1"
        source = ["--weights", self.saved, "--data", "digits"]
        self.assertNotIn("attention_probs", self.succeeds("eval", *source).stderr)
        self.change_config(attention_probs_dropout_prob=0.3)
        self.assertIn(said, self.succeeds("eval", *source).stderr)
        self.assertIn(said, self.trains(*source))
        self.change_config(attention_probs_dropout_prob=1)
        self.assertIn("attention_probs_dropout_prob: expected 0 or more", self.evaluates())

    def test_labels_that_do_not_match(self):
        self.save(vit())
        self.change_config(id2label={"0": "a", "1": "b"})
        self.assertIn("id2label: it names 2 classes, but the head in", self.evaluates())
        self.change_config(id2label={"0": "a", "2": "b"})
        self.assertIn('expected a name for each number from "0" on', self.evaluates())
        self.change_config(id2label={str(i): f"kind {i}" for i in range(10)})
        self.assertIn("the network does not know '0'", self.evaluates())

    def test_an_unknown_architecture_is_named_with_the_nearest(self):
        self.save(vit())
        self.change_config(model_type="vits", architectures=["VitsModel"])
        message = self.evaluates()
        self.assertIn("the architecture vits (VitsModel) is not supported; the nearest that is: vit", message)
        self.change_config(model_type="llama", architectures=["LlamaForCausalLM"])
        message = self.evaluates()
        self.assertIn("llama (LlamaForCausalLM) is not supported; expected one of vit, deit, swin", message)
        save_file({"model.layers.0.weight": torch.zeros(2)}, self.saved / "model.safetensors")
        self.assertIn("llama", self.evaluates())
        (self.saved / "config.json").unlink()
        self.assertIn("names that are not known", self.evaluates())

    def test_half_a_sharded_checkpoint(self):
        vit().save_pretrained(self.saved, max_shard_size="20KB")
        index = json.loads((self.saved / "model.safetensors.index.json").read_text())["weight_map"]
        self.succeeds("eval", "--weights", self.saved, "--data", "digits")
        name, shard = sorted(index.items())[0]
        tensors = load_file(self.saved / shard)
        del tensors[name]
        save_file(tensors or {"other": torch.zeros(1)}, self.saved / shard)
        self.assertIn(f"{name} is missing in {shard}", self.evaluates())
        (self.saved / shard).unlink()
        message = self.evaluates()
        self.assertIn(f"the file '{shard}' is missing", message)
        self.assertIn("nothing was loaded", message)

    def test_tensors_of_other_shapes_are_listed(self):
        self.save(vit())
        self.change_tensors(lambda t: t.update({"vit.layernorm.weight": torch.zeros(31)}))
        message = self.evaluates()
        self.assertIn("vit.layernorm.weight is [31], expected [32]", message)
        self.change_tensors(lambda t: t.update({"vit.layernorm.weight": torch.zeros(32), "more": torch.zeros(1)}))
        self.assertIn("more is not expected", self.evaluates())
        self.change_tensors(lambda t: (t.pop("more"), t.pop("vit.layernorm.bias")))
        self.assertIn("vit.layernorm.bias is missing", self.evaluates())

    def test_flags_that_contradict_the_weights(self):
        self.save(vit())
        out = ["--data", "digits", "--out", self.folder / "none"]
        message = self.refused("train", "--weights", self.saved, "--model", "swin_tiny", *out)
        self.assertIn("--model: got swin_tiny, but the weights in", message)
        self.assertIn("have vit_base", message)
        self.assertIn("--depth: got 3,", self.refused("train", "--weights", self.saved, "--depth", "3", *out))
        self.assertIn("or the reversible network, which 'pareprop convert --reversible' makes of",
                      self.refused("train", "--weights", self.saved, "--mode", "pareprop", *out))
        self.succeeds("train", "--weights", self.saved, "--model", "vit_base", "--depth", "2", *TWO_STEPS, *out)

    def test_a_freeze_pattern_that_fits_nothing(self):
        self.save(vit())
        message = self.refused("train", "--weights", self.saved, "--data", "digits", "--freeze", "patch_embd.*", "--out",
                               self.folder / "none")
        self.assertIn("--freeze: no parameter fits 'patch_embd.*'; the nearest are patch_embed.", message)

    def test_a_file_without_its_config(self):
        self.save(vit())
        (self.saved / "config.json").unlink()
        file = self.saved / "model.safetensors"
        out = ["--data", "digits", "--out", self.folder / "none"]
        self.assertIn("--heads: the weights in", self.refused("train", "--weights", file, *out))
        said = self.succeeds("train", "--weights", file, "--heads", "2", *TWO_STEPS, *out).stderr
        self.assertIn("no config.json of the model beside", said)

    def test_exports_that_cannot_be(self):
        self.trains("--model", "vit_cifar", "--data", "digits")
        out = self.folder / "out"
        message = self.refused("export", "--run", self.folder / "run", "--out", out)
        self.assertIn("fit only the plain ViT, Swin and RoBERTa", message)
        self.assertIn("--names own", message)
        self.succeeds("export", "--run", self.folder / "run", "--out", out, "--names", "own")
        self.assertIn("not an empty folder", self.refused("export", "--run", self.folder / "run", "--out", out,
                                                          "--names", "own"))
        self.assertIn("--names: expected hugging-face, timm or own", self.refused(
            "export", "--run", self.folder / "run", "--out", out, "--names", "onnx"))

    def test_inputs_that_do_not_fit(self):
        self.save(vit())
        scores = ["--input", self.folder / "in", "--scores", self.folder / "out"]
        save_file({"pixel_values": torch.zeros(1, 3, 16, 16)}, self.folder / "in")
        self.assertIn("expected images [batch, 3, 32, 32]", self.refused("eval", "--weights", self.saved, *scores))
        save_file({"input_ids": torch.zeros(1, 3, dtype=torch.long)}, self.folder / "in")
        self.assertIn("has no tensor pixel_values", self.refused("eval", "--weights", self.saved, *scores))
        self.assertIn("--input: it goes with --scores", self.refused("eval", "--weights", self.saved, *scores[:2]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
