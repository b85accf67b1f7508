"""Content made to do harm. Each function returns bytes (or files) and what is wrong with them."""

import gzip
import io
import json
import struct
import zlib

from PIL import Image


def framed(header, data=b""):
    return struct.pack("<Q", len(header)) + header + data


def safetensors(chance, whole):
    """Variants of a file that is right."""
    (length,) = struct.unpack_from("<Q", whole)
    header, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    names = [name for name in header if name != "__metadata__"]
    name, other = chance.sample(names, 2)

    def changed(**entry):
        return framed(json.dumps({**header, name: {**header[name], **entry}}).encode(), data)

    end = header[name]["data_offsets"][1]
    repeated = json.dumps(header)[:-1] + "," + json.dumps({name: header[name]})[1:]
    kinds = {
        "empty file": lambda: b"",
        "length alone": lambda: struct.pack("<Q", 100),
        "huge length": lambda: struct.pack("<Q", chance.choice((2**63, 2**64 - 1, 2**40, len(whole)))) + whole[8:],
        "random bytes": lambda: chance.randbytes(chance.choice((8, 100, 100000))),
        "random header": lambda: framed(chance.randbytes(1000), data),
        "overlapping offsets": lambda: changed(data_offsets=header[other]["data_offsets"]),
        "offsets beyond the end": lambda: changed(data_offsets=[len(data), len(data) + end]),
        "offsets turned round": lambda: changed(data_offsets=header[name]["data_offsets"][::-1]),
        "huge offsets": lambda: changed(data_offsets=[2**63 - 1, 2**64 - 1]),
        "negative offsets": lambda: changed(data_offsets=[-8, 0]),
        "offsets that are no numbers": lambda: changed(data_offsets=chance.choice(("x", [1.5, 2], [], [0], None))),
        "huge shape": lambda: changed(shape=[2**40, 2**40]),
        "shape whose size wraps to it": lambda: changed(shape=[2**32, 2**32]),
        "negative shape": lambda: changed(shape=[-1, -4]),
        "a million dimensions": lambda: changed(shape=[1] * 1000000),
        "unknown type": lambda: changed(dtype=chance.choice(("F33", "", "\x1b[2J", 7, None))),
        "another type": lambda: changed(dtype="I8"),
        "deep JSON": lambda: framed(b'{"a":' + b"[" * 1000000, data),
        "deep JSON that is right": lambda: framed(b'{"a":' + b"[" * 50000 + b"]" * 50000 + b"}", data),
        "the same name twice": lambda: framed(repeated.encode(), data),
        "no object": lambda: framed(chance.choice((b"[]", b"1", b"null", b'"x"', b"")), data),
        "cut": lambda: whole[:chance.randrange(len(whole))],
        "more data than named": lambda: whole + bytes(chance.randrange(1, 100)),
        "not a number in it": lambda: framed(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,0]}}'),
        "a name missing": lambda: framed(json.dumps({k: v for k, v in header.items() if k != name}).encode(), data),
        "broken UTF-8 in a name": lambda: framed(whole[8:8 + length].replace(name.encode(), b"\xff\xc0\xaf"), data),
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, rows, depth=8, colour=2):
    head = struct.pack(">IIBBBBB", width & 0xFFFFFFFF, height & 0xFFFFFFFF, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def encoded(kind, size=(32, 32)):
    buffer = io.BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(buffer, kind)
    return buffer.getvalue()


def resized_jpeg(width, height):
    data = bytearray(encoded("JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at:at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def image(chance):
    """(content, what, name)"""
    whole_png, whole_jpeg = encoded("PNG"), encoded("JPEG")
    kinds = {
        "PNG of 2^31 x 2^31": lambda: png(2**31 - 1, 2**31 - 1, zlib.compress(b"")),
        "PNG of 0 x 0": lambda: png(0, 0, zlib.compress(b"")),
        "PNG of 65535 x 65535": lambda: png(65535, 65535, zlib.compress(bytes(1000))),
        "PNG bomb": lambda: png(30000, 30000, zlib.compress(bytes(100 << 20), 9)),
        "PNG cut": lambda: whole_png[:chance.randrange(8, len(whole_png) - 20)],
        "PNG of an unknown colour type": lambda: png(8, 8, zlib.compress(bytes(1000)), 8, 5),
        "PNG of 3 bits": lambda: png(8, 8, zlib.compress(bytes(1000)), 3, 2),
        "PNG without rows": lambda: png(8, 8, b""),
        "PNG with rows that are no zlib": lambda: png(8, 8, chance.randbytes(300)),
        "JPEG of 65535 x 65535": lambda: resized_jpeg(65535, 65535),
        "JPEG of 0 x 0": lambda: resized_jpeg(0, 0),
        "JPEG's beginning": lambda: whole_jpeg[:chance.randrange(2, 300)],
        "random bytes": lambda: chance.randbytes(1000),
        "nothing": lambda: b"",
        "GIF": lambda: encoded("GIF"),
        "text": lambda: b"<svg onload=alert(1)>",
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what, "x.jpg" if "JPEG" in what else "x.png"


def idx(code, shape, data):
    return struct.pack(">HBB", 0, code, len(shape)) + b"".join(struct.pack(">I", n & 0xFFFFFFFF) for n in shape) + data


def image_arrays(chance):
    """(files, what, scheme)"""
    def idx_files(images, labels, suffix=""):
        return {f"{part}-{kind}{suffix}": content for part in ("train", "t10k")
                for kind, content in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels))}

    images, labels = idx(8, (20, 8, 8), chance.randbytes(20 * 64)), idx(8, (20,), bytes(i % 10 for i in range(20)))
    huge = idx(8, (2**32 - 1, 2**32 - 1, 2**32 - 1), b"")
    zipped = gzip.compress(images)
    kinds = {
        "IDX that is huge": lambda: idx_files(huge, labels),
        "IDX whose size wraps": lambda: idx_files(idx(8, (2**31, 2**31, 4), b""), labels),
        "IDX cut": lambda: idx_files(images[:chance.randrange(len(images))], labels),
        "IDX with more": lambda: idx_files(images + b"x", labels),
        "IDX of no images": lambda: idx_files(idx(8, (0, 8, 8), b""), idx(8, (0,), b"")),
        "IDX of no pixels": lambda: idx_files(idx(8, (20, 0, 0), b""), labels),
        "IDX of 255 dimensions": lambda: idx_files(idx(8, (1,) * 255, b"x"), labels),
        "IDX of floats": lambda: idx_files(idx(13, (20, 8, 8), bytes(4 * 20 * 64)), labels),
        "IDX with fewer labels": lambda: idx_files(images, idx(8, (19,), bytes(19))),
        "IDX with images for labels": lambda: idx_files(images, images),
        "IDX random": lambda: idx_files(chance.randbytes(1000), labels),
        "IDX empty": lambda: idx_files(b"", b""),
        "gzip cut": lambda: idx_files(zipped[:len(zipped) // 2], gzip.compress(labels), ".gz"),
        "gzip of nothing": lambda: idx_files(b"", b"", ".gz"),
        "gzip bomb": lambda: idx_files(gzip.compress(idx(8, (20, 8, 8), bytes(200 << 20)), 9), gzip.compress(labels),
                                       ".gz"),
        "no files": lambda: {},
        "CIFAR cut": lambda: {f"data_batch_{i}.bin": bytes(3073 * 4 - 1) for i in range(1, 6)}
        | {"test_batch.bin": bytes(3073)},
        "CIFAR with label 255": lambda: {f"data_batch_{i}.bin": b"\xff" * 3073 for i in range(1, 6)}
        | {"test_batch.bin": bytes(3073)},
        "CIFAR empty": lambda: {f"data_batch_{i}.bin": b"" for i in range(1, 6)} | {"test_batch.bin": b""},
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what, "cifar10" if "CIFAR" in what else "idx"


def tokenizer(chance, whole):
    """Variants of a tokenizer.json that is right."""
    def changed(change):
        value = json.loads(whole)
        change(value)
        return json.dumps(value).encode()

    def model(**entry):
        return lambda: changed(lambda value: value["model"].update(entry))

    vocabulary = json.loads(whole)["model"]["vocab"]
    name = chance.choice(sorted(vocabulary))
    kinds = {
        "deep": lambda: b"[" * 1000000,
        "deep inside": lambda: b'{"model":' + b'{"a":' * 200000 + b"1" + b"}" * 200001,
        "cut": lambda: whole[:chance.randrange(len(whole))],
        "empty": lambda: b"",
        "random": lambda: chance.randbytes(1000),
        "another model": model(type=chance.choice(("WordPiece", "Unigram", "", None, 7))),
        "ids beyond": model(vocab={**vocabulary, name: chance.choice((2**31, 2**63, -1, 1e300, "x", None))}),
        "the same id twice": model(vocab={**vocabulary, name: (vocabulary[name] + 1) % len(vocabulary)}),
        "no vocabulary": model(vocab={}),
        "merges of nothing": model(merges=["nothing atall", ["also", "nothing"]]),
        "merges that are no pairs": model(merges=chance.choice(([["a"]], ["a"], [1], 7, [["a", "b", "c"]]))),
        "no object": lambda: chance.choice((b"[]", b"null", b"1")),
        "broken UTF-8": lambda: whole.replace(b'"<mask>"', b'"\xff\xc0"'),
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what


def text(chance):
    sentence = b"It is a truth universally acknowledged, that a single man. "
    kinds = {
        "NULs": lambda: sentence * 20 + bytes(1000) + sentence * 20,
        "NULs only": lambda: bytes(20000),
        "broken UTF-8": lambda: (sentence + b"\xff\xfe\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80") * 50,
        "random bytes": lambda: chance.randbytes(20000),
        "one line without spaces": lambda: b"a" * 300000,
        "spaces": lambda: b" " * 20000,
        "combining marks": lambda: ("a" + "\u0301" * 5000).encode() * 3,
        "escape sequences": lambda: (sentence + b"\x1b[2J\x1b]0;x\x07") * 50,
        "special tokens": lambda: b"<s></s><pad><mask><unk>" * 500,
        "UTF-16": lambda: (sentence.decode() * 20).encode("utf-16"),
        "nothing": lambda: b"",
        "one byte": lambda: b"x",
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what


def configuration(chance):
    kinds = {
        "nested a million deep": lambda: b"[" * 1000000,
        "nested objects": lambda: b'{"batch":' + b'{"a":' * 300000,
        "nested and closed": lambda: b'{"batch":' + b"[" * 100000 + b"]" * 100000 + b"}",
        "cut": lambda: b'{"batch": 4, "mod',
        "empty": lambda: b"",
        "random": lambda: chance.randbytes(1000),
        "NULs": lambda: bytes(1000),
        "unknown key": lambda: b'{"bacth": 4}',
        "wrong type": lambda: b'{"batch": %s}' % chance.choice((b'"x"', b"[]", b"{}", b"1.5", b"[1]", b"true")),
        "absurd number": lambda: b'{"batch": %s}' % chance.choice((b"1e400", b"-1", b"0", b"9" * 400, b"1e300")),
        "NaN": lambda: b'{"learning_rate": NaN}',
        "no object": lambda: chance.choice((b"[]", b"1", b"null", b'"x"')),
        "broken UTF-8": lambda: b'{"model": "\xff\xc0\xaf"}',
        "lone surrogate": lambda: b'{"model": "\\ud800"}',
        "NUL in a name": lambda: b'{"model": "vit_cifar\\u0000x"}',
        "a number of a million digits": lambda: b'{"batch": 1%s}' % (b"0" * 1000000),
        "a megabyte's name": lambda: b'{"model": "%s"}' % (b"x" * 1000000),
    }
    what = chance.choice(sorted(kinds))
    return kinds[what](), what
