"""Our byte-level BPE against Hugging Face's tokenizers: words, merges, ids, and each other's files. Called by
ctest with the program that tokenizer_probe.cpp is."""

import json
import random
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from pathlib import Path

try:
    import tokenizers
    from tokenizers import ByteLevelBPETokenizer, Tokenizer, pre_tokenizers
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}; pip install tokenizers")
    sys.exit(77)

PROGRAM = ""
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
REPOSITORY = Path(__file__).resolve().parents[3]
# Prose, code, numbers.
FILES = [REPOSITORY / name for name in
         ["data/persuasion.txt", "README.md", "Makefile", "pareprop/data/text/unicode_ranges.inc"]]
FILES += sorted((REPOSITORY / "pareprop/graph").glob("*.cpp"))


def call(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} failed: {done.stderr.decode()}")
    return done.stdout.decode()


# unicodedata is older than the tables of tokenizers: characters that it does not know are left out.
CODES = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]


def random_text(chance, letters):
    pieces = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'",
              "\u00a0", "\u2003", "\u3000", "\u0085", "\x1c", "don't", "it's 3.14!", "1", "23", "!?", "_", "é",
              "Ünï", "日本", "٣", "ⅷ", "👍🏽", "e\u0301", "\u200b", "\ufeff"]
    return "".join(chance.choice(pieces) if chance.random() < 0.6 else chr(chance.choice(letters))
                   for _ in range(chance.randrange(40)))


class TokenizersOfPython(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        self.chance = random.Random(seed)

    def ask(self, command, texts, *arguments):
        (self.folder / "texts").write_text(json.dumps(texts))
        return json.loads(call(command, *arguments, self.folder / "texts"))

    def texts(self, count):
        ascii_codes = range(128)
        return [random_text(self.chance, CODES if i % 2 else ascii_codes) for i in range(count)]

    def trained(self, files, vocabulary, minimum):
        """The same training twice: the folder of C++ and the tokenizer of Python."""
        reference = ByteLevelBPETokenizer()
        reference.train([str(file) for file in files], vocab_size=vocabulary, min_frequency=minimum,
                        special_tokens=SPECIAL, show_progress=False)
        call("train", self.folder / "ours", vocabulary, minimum, *files)
        return self.folder / "ours", reference

    def assert_same_model(self, ours, reference):
        expected = json.loads(reference.to_str())["model"]
        got = json.loads((ours / "tokenizer.json").read_text())["model"]
        self.assertEqual(got["merges"], expected["merges"])
        self.assertEqual(got["vocab"], expected["vocab"])
        self.assertEqual(set(got), set(expected))

    def test_words(self):
        splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
        texts = self.texts(3000) + [chr(code) + "a" + chr(code) + " " + chr(code) + "1" for code in CODES[::7]]
        for text, words in zip(texts, self.ask("words", texts), strict=True):
            ends = [end for _, (_, end) in splitter.pre_tokenize_str(text)]
            got = []
            for word in words:
                got.append((got[-1] if got else 0) + len(word))
            self.assertEqual(got, ends, repr(text))

    def test_training_on_the_files_of_this_repository(self):
        for vocabulary, minimum in [(261, 2), (262, 2), (1000, 2), (6000, 1), (100000, 3)]:
            ours, reference = self.trained(FILES, vocabulary, minimum)
            self.assert_same_model(ours, reference)

    def test_training_on_random_texts(self):
        for i in range(24):
            alphabet = ["a", "b", " ", "\n", "aa", "ab", "aba", "é", "1", "'s"][:self.chance.randrange(2, 11)]
            text = "".join(self.chance.choices(alphabet, k=self.chance.randrange(1, 3000)))
            (self.folder / "text").write_text(text)
            ours, reference = self.trained([self.folder / "text"], self.chance.randrange(261, 500), 1 + i % 3)
            self.assert_same_model(ours, reference)

    def test_ids_and_files_both_ways(self):
        ours, reference = self.trained(FILES, 3000, 2)
        texts = self.texts(500) + [file.read_text() for file in FILES]
        expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
        self.assertEqual(self.ask("encode", texts, ours), expected)
        self.assertEqual(self.ask("encode", texts, ours / "tokenizer.json"), expected)

        theirs = Tokenizer.from_file(str(ours / "tokenizer.json"))
        self.assertEqual([theirs.encode(text, add_special_tokens=False).ids for text in texts], expected)
        for text, ids in zip(texts, expected, strict=True):
            self.assertEqual(theirs.encode(text).ids, [0, *ids, 2])
            self.assertEqual(theirs.decode(ids), text)
        older = ByteLevelBPETokenizer(str(ours / "vocab.json"), str(ours / "merges.txt"))
        self.assertEqual([older.encode(text).ids for text in texts], expected)

        (self.folder / "json").mkdir()
        reference.save(str(self.folder / "json" / "tokenizer.json"))
        (self.folder / "pair").mkdir()
        reference.save_model(str(self.folder / "pair"))
        for name in ("json", "pair"):
            self.assertEqual(self.ask("encode", texts, self.folder / name), expected)
            call("copy", self.folder / name, self.folder / (name + "_copy"))
            for file in ("tokenizer.json", "vocab.json", "merges.txt"):
                self.assertEqual((self.folder / (name + "_copy") / file).read_bytes(), (ours / file).read_bytes())

    def test_masks_take_the_space_before_them(self):
        ours, _ = self.trained(FILES, 3000, 2)
        texts = ["She was <mask>.", "<mask> was", "a  \n\u3000<mask><mask> b", " <mask>", "was<mask>", "x <mask> <mask>"]
        texts += ["<mask>".join(self.texts(self.chance.randrange(1, 4))) for _ in range(300)]
        theirs = Tokenizer.from_file(str(ours / "tokenizer.json"))
        expected = [theirs.encode(text).ids for text in texts]
        self.assertEqual(self.ask("masked", texts, ours), expected)
        space = theirs.token_to_id("Ġ")
        self.assertNotIn(space, expected[0])

    def test_transformers_load_the_folder(self):
        try:
            from transformers import AutoTokenizer
        except ImportError:
            self.skipTest("there is no transformers")
        ours, _ = self.trained(FILES, 3000, 2)
        loaded = AutoTokenizer.from_pretrained(str(ours))
        texts = ["It was <mask>.", "Anne's 3 cousins", "  two", *self.texts(50)]
        for text, ids in zip(texts, self.ask("masked", texts, ours), strict=True):
            self.assertEqual(loaded(text)["input_ids"], ids, repr(text))
        self.assertEqual(
            [loaded.bos_token_id, loaded.pad_token_id, loaded.eos_token_id, loaded.unk_token_id, loaded.mask_token_id],
            [0, 1, 2, 3, 4])
        self.assertEqual(loaded.decode(loaded("Anne was here", add_special_tokens=False)["input_ids"]), "Anne was here")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    print("tokenizers", tokenizers.__version__)
    unittest.main()
