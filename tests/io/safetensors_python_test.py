"""What C++ writes, Python's safetensors reads bit for bit, and the other way round; and both agree on
damaged files. Called by ctest with the program that write_sample.cpp is."""

import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from safetensors import SafetensorError, deserialize, safe_open
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}; pip install torch safetensors numpy")
    sys.exit(77)

PROGRAM = ""

# The names that C++ gives the types, in the order of sample_tensors.h.
TYPES = {
    "Bool": torch.bool, "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16,
    "Int": torch.int32, "Long": torch.int64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Float": torch.float32, "Double": torch.float64,
}
SHAPES = [(), (7,), (3, 5), (2, 1, 3, 4), (2, 0, 3)]
SUFFIXES = ["plain", "\"\\/\b\f\n\r\t\x01\x1f\x7f", "é€\U0001f600\u2028", "n" * 3000, ""]

# What C++ refuses and safetensors 0.8.0 takes: Note [Stricter than the reference].
STRICTER = re.compile(
    r"appears twice|the header starts with|__metadata__ is null|has a field|is not supported|"
    r"expected an integer from 0 to 9223372036854775807|its size in bytes overflows")


def call(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} failed: {done.stderr.decode()}")
    return done.stdout.decode()


def bits(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def pattern(dtype, shape, seed):
    """As pattern() in sample_tensors.h."""
    elements = 1
    for size in shape:
        elements *= size
    count = elements * torch.empty((), dtype=dtype).element_size()
    data = bytes((i * 131 + seed * 17 + 5) % 256 for i in range(count))
    if dtype == torch.bool:
        data = bytes(value & 1 for value in data)
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def sample_tensors():
    seeds = iter(range(len(TYPES) * len(SHAPES)))
    return {f"{name}/{i} {SUFFIXES[i]}": pattern(dtype, shape, next(seeds))
            for name, dtype in TYPES.items() for i, shape in enumerate(SHAPES)}


class SafetensorsOfPython(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_same(self, got, expected):
        self.assertEqual(set(got), set(expected))
        for name, tensor in expected.items():
            self.assertEqual(got[name].dtype, tensor.dtype, name)
            self.assertEqual(got[name].shape, tensor.shape, name)
            self.assertEqual(bits(got[name]), bits(tensor), name)

    def test_python_reads_what_cpp_writes(self):
        call("write", self.folder / "a")
        self.assert_same(load_file(self.folder / "a"), sample_tensors())
        with safe_open(self.folder / "a", framework="pt") as file:
            self.assertEqual(file.metadata(), {"made by": "C++ é"})

    def test_both_write_the_same_file(self):
        call("write", self.folder / "a")
        save_file(sample_tensors(), self.folder / "b", {"made by": "C++ é"})
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_python_reads_sealed_files_and_keeps_the_seal_whole(self):
        call("seal", self.folder / "a")
        self.assert_same(load_file(self.folder / "a"), sample_tensors())
        with safe_open(self.folder / "a", framework="pt") as file:
            metadata = file.metadata()
        self.assertEqual(set(metadata), {"format", "pareprop.xxh64"})
        save_file(sample_tensors(), self.folder / "b", metadata)
        call("verify", self.folder / "b")
        save_file({**sample_tensors(), "another": torch.ones(1)}, self.folder / "c", metadata)
        with self.assertRaisesRegex(AssertionError, "does not match its checksum"):
            call("verify", self.folder / "c")

    def test_cpp_reads_what_python_writes(self):
        generator = torch.Generator().manual_seed(7)
        tensors = {}
        for i in range(60):
            dtype = random.Random(i).choice(list(TYPES.values()))
            shape = random.Random(i + 1000).choices(range(6), k=i % 4)
            values = torch.randint(0, 256, (*shape, torch.empty((), dtype=dtype).element_size()),
                                   dtype=torch.uint8, generator=generator)
            if dtype == torch.bool:
                values &= 1
            tensors[f"layer.{i}.wéight"] = values.view(dtype).reshape(shape)
        for metadata in (None, {"format": "pt"}):
            save_file(tensors, self.folder / "a", metadata)
            call("copy", self.folder / "a", self.folder / "b")
            self.assert_same(load_file(self.folder / "b"), tensors)
            self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_cpp_reads_what_is_not_aligned_and_in_another_order(self):
        header = json.dumps({
            "f": {"dtype": "F64", "shape": [2], "data_offsets": [3, 19]},
            "u": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        }).encode()
        (self.folder / "a").write_bytes(
            len(header).to_bytes(8, "little") + header + bytes(range(19)))
        call("copy", self.folder / "a", self.folder / "b")
        copied = load_file(self.folder / "b")
        self.assertEqual(bits(copied["f"]), bytes(range(3, 19)))
        self.assertEqual(bits(copied["u"]), bytes(range(3)))

    def test_both_agree_on_damaged_files(self):
        seed = random.SystemRandom().randrange(2**32)
        print("seed", seed)
        chance = random.Random(seed)
        tensors = {"b": torch.ones(2, 3), "a": torch.ones(4, dtype=torch.bool),
                   "e": torch.ones(0, 2), "i": torch.ones(2, dtype=torch.int64)}
        save_file(tensors, self.folder / "good", {"k": "v"})
        good = (self.folder / "good").read_bytes()
        files = []
        for i in range(3000):
            files.append(self.folder / str(i))
            files[-1].write_bytes(damaged(good, chance))
        accepted = 0
        stricter = 0
        # An error of C++ may repeat a name with a line break in it only as \x0a.
        lines = call("check", *files).split("\n")
        for path, line in zip(files, lines[:-1], strict=True):
            data = path.read_bytes()
            try:
                reference = facts_of(data)
            except SafetensorError:
                reference = None
            if line.startswith("ok"):
                accepted += 1
                self.assertIsNotNone(reference, f"only C++ takes {data!r}")
                self.assertEqual(sorted(line.split()[1:]), sorted(reference), f"{data!r}")
            elif reference is not None:
                stricter += 1
                self.assertRegex(line, STRICTER, f"only Python takes {data!r}")
        print(f"{len(files)} files, {accepted} accepted, {stricter} only by Python")
        self.assertGreater(accepted, 100)


def damaged(good, chance):
    length = int.from_bytes(good[:8], "little")
    header, data = good[8:8 + length], good[8 + length:]
    kind = chance.randrange(3)
    if kind == 0:  # bytes
        mutable = bytearray(good)
        for _ in range(chance.randrange(1, 3)):
            mutable[chance.randrange(len(mutable))] = chance.choice(
                [chance.randrange(256), *b'{}[]",:0123 \n-'])
        return bytes(mutable)
    if kind == 1:  # a number of the header, which keeps its length right
        numbers = list(re.finditer(rb"\d+", header))
        number = chance.choice(numbers)
        value = chance.choice([b"0", b"1", b"2", b"3", b"8", b"16", b"24", b"-1", b"1.0", b"1e1", b"-0",
                               b"9223372036854775808", b"18446744073709551616", number.group()])
        header = header[:number.start()] + value + header[number.end():]
    else:  # the structure
        values = json.loads(header)
        name = chance.choice(list(values))
        other = chance.choice(list(values))
        action = chance.randrange(5)
        if action == 0:
            del values[name]
        elif action == 1:
            values[name], values[other] = values[other], values[name]
        elif action == 2:
            values[name] = chance.choice([None, 1, "x", [], {}])
        elif action == 3 and name != "__metadata__":
            field = chance.choice(list(values[name]))
            values[name][field] = chance.choice([None, "F32", "U16", [], [0, 4], [0], 3])
        elif name != "__metadata__":
            values[name]["extra"] = 1
        header = json.dumps(values, separators=(",", ":")).encode()
        if chance.randrange(8) == 0:
            header = b"{" + header[1:-1] + b"," + header[1:]
    header = chance.choice([b"", b"", b"", b" "]) + header + chance.choice([b"", b"  "])
    data += bytes(chance.choice([0, 0, 0, 0, 1]))
    return len(header).to_bytes(8, "little") + header + data


def facts_of(data):
    """TYPE:BEGIN:END:SIZES of each tensor, from a file that the reference implementation takes."""
    names = {name for name, _ in deserialize(data)}
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return [":".join(map(str, [info["dtype"], *info["data_offsets"], *info["shape"]]))
            for name, info in header.items() if name in names]


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
