"""Reads everything in the folder of a run, without the code that wrote it."""

import json
import struct
from pathlib import Path

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                      0x27D4EB2F165667C5)


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def xxh64(data):
    """XXH64 with seed 0, as its specification says."""
    def mixed(lane, word):
        return rotated((lane + word * P2) & MASK, 31) * P1 & MASK

    at = len(data) - len(data) % 32
    if at:
        a, b, c, d = (P1 + P2) & MASK, P2, 0, -P1 & MASK
        for w, x, y, z in struct.iter_unpack("<4Q", data[:at]):
            a, b, c, d = mixed(a, w), mixed(b, x), mixed(c, y), mixed(d, z)
        value = (rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)) & MASK
        for lane in (a, b, c, d):
            value = ((value ^ mixed(0, lane)) * P1 + P4) & MASK
    else:
        value = P5
    value = (value + len(data)) & MASK
    while at + 8 <= len(data):
        value = (rotated(value ^ mixed(0, int.from_bytes(data[at:at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        value = (rotated(value ^ int.from_bytes(data[at:at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        value = rotated(value ^ byte * P5 & MASK, 11) * P1 & MASK
    for shift, factor in ((33, P2), (29, P3), (32, 1)):
        value = (value ^ value >> shift) * factor & MASK
    return f"{value:016x}"


def crc32c_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CRC32C = list(crc32c_table())


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_safetensors(data):
    """The header. Raises ValueError where header and bytes do not agree."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    spans = sorted(tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__")
    at = 0
    for begin, end in spans:
        if begin != at:
            raise ValueError(f"a tensor begins at {begin}, not at {at}")
        at = end
    if 8 + length + at != len(data):
        raise ValueError(f"{len(data)} bytes, {8 + length + at} expected")
    return header


def read_events(data):
    at = 0
    while at < len(data):
        head, (length,) = data[at:at + 8], struct.unpack_from("<Q", data, at)
        body = data[at + 12:at + 12 + length]
        sums = struct.unpack_from("<I", data, at + 8) + struct.unpack_from("<I", data, at + 12 + length)
        if sums != (masked_crc32c(head), masked_crc32c(body)):
            raise ValueError(f"the record at {at} is damaged")
        at += 16 + length


def read_checkpoint(folder):
    state = json.loads((folder / "state.json").read_text())
    if {"weights.safetensors", "optimizer.safetensors"} - state["files"].keys():
        raise ValueError("state.json lacks a file")
    for name, seal in state["files"].items():
        data = (folder / name).read_bytes()
        if len(data) != seal["size"] or xxh64(data) != seal["xxh64"]:
            raise ValueError(f"{name} is not what was written")
    if folder.name != f"step-{state['state']['step']:08d}":
        raise ValueError("its state is of another step")


def read_file(path):
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        read_safetensors(data)
    elif path.suffix == ".json":
        json.loads(data)
    elif path.suffix == ".jsonl":
        if data and not data.endswith(b"\n"):
            raise ValueError("its last line is not whole")
        for line in data.splitlines():
            json.loads(line)["step"]
    elif path.suffix == ".html" and not data.rstrip().endswith(b"</html>"):
        raise ValueError("it does not end with </html>")
    elif "tfevents" in path.name:
        read_events(data)


def lines_of(folder):
    """The whole lines of metrics.jsonl, as objects; none where the file is not there yet."""
    try:
        lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def is_leftover(path):
    return any(".partial" in part or part.endswith(".removed") for part in path.parts)


def checkpoints(folder):
    """Newest last."""
    return sorted(path for path in (folder / "checkpoints").glob("step-*") if not is_leftover(path))


def faults(folder, leftovers=False):
    """A line for each thing in the run's folder that is not whole. What killed writers leave counts, unless
    `leftovers`."""
    found = []
    for path in sorted(Path(folder).rglob("*")):
        name = path.relative_to(folder)
        try:
            if is_leftover(name):
                if not leftovers:
                    found.append(f"{name} was left over")
            elif path.is_file():
                read_file(path)
            elif name.parts[0] == "checkpoints" and name.name.startswith("step-"):
                read_checkpoint(path)
        except (ValueError, KeyError, TypeError, struct.error, OSError) as error:
            found.append(f"{name}: {error!r}")
    return found
