"""Reads every include of the library and fails on one that CONTRIBUTING.md does not draw.

    includes_test.py ROOT

The drawing is the block under "Layers": a folder may include what its arrow leads to, and what that leads to.
An arrow that no include needs fails too, so that the drawing is the real one. Code in the documents may only
include the headers that CONTRIBUTING.md names as those for users.
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", CONTRIBUTING, re.M | re.S).group(1)


def drawn_arrows():
    arrows = {}
    block = re.search(r"```text\n(.*?)```", section("Layers"), re.S).group(1)
    for line in block.splitlines():
        if "->" not in line or "everything" in line:
            continue
        left, right = line.split("->")
        targets = set(re.findall(r"\w+", right)) - {"nothing"}
        for folder in re.findall(r"\w+", left):
            arrows[folder] = targets
    return arrows


def left_out_by(layer):
    """What "everything below, without a and b" leaves out."""
    line = re.search(rf"^{layer}\b.*-> everything below(.*)$", section("Layers"), re.M).group(1)
    return set(re.findall(r"\w+", line)) - {"without", "and"}


def linked_by_cmake():
    """The LINKS of pareprop_library() in each folder, without torch."""
    links = {}
    for path in sorted((ROOT / "pareprop").glob("*/CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
        found = set()
        for block in re.findall(r"pareprop_library\(\w+(.*?)\)", text, re.S):
            found |= set(re.findall(r"\bpareprop_(\w+)", block.partition("LINKS")[2]))
        links[path.parent.name] = found - {path.parent.name, "torch", "stream_lanes"}  # the latter is in lanes/
    return links


def reachable(arrows, folder):
    seen, open_ = set(), [folder]
    while open_:
        for target in arrows[open_.pop()]:
            if target not in seen:
                seen.add(target)
                open_.append(target)
    return seen


def includes():
    for path in sorted((ROOT / "pareprop").rglob("*")):
        if path.suffix not in (".h", ".cpp") or path.parent == ROOT / "pareprop":
            continue
        folder = path.relative_to(ROOT / "pareprop").parts[0]
        for target in re.findall(r'^#include "pareprop/(\w+)/', path.read_text(encoding="utf-8"), re.M):
            if target != folder:
                yield path.relative_to(ROOT), folder, target


class Includes(unittest.TestCase):
    def test_every_folder_is_drawn(self):
        folders = {p.name for p in (ROOT / "pareprop").iterdir() if p.is_dir()}
        self.assertEqual(folders, set(drawn_arrows()))

    def test_no_arrow_leads_back(self):
        arrows = drawn_arrows()
        for folder in arrows:
            self.assertNotIn(folder, reachable(arrows, folder))

    def test_every_include_is_drawn(self):
        arrows = drawn_arrows()
        stray = [f"{path} includes pareprop/{target}" for path, folder, target in includes()
                 if target not in reachable(arrows, folder)]
        self.assertEqual(stray, [])

    def test_the_library_includes_nothing_above_it(self):
        stray = [f"{path.relative_to(ROOT)} includes {target}"
                 for path in sorted((ROOT / "pareprop").rglob("*")) if path.suffix in (".h", ".cpp")
                 for target in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M)
                 if not target.startswith("pareprop/")]
        self.assertEqual(stray, [])

    def test_the_arrows_are_those_of_cmake(self):
        self.assertEqual(linked_by_cmake(), drawn_arrows())

    def test_every_arrow_is_needed(self):
        real = {(folder, target) for _, folder, target in includes()}
        idle = [f"{folder} -> {target}" for folder, targets in drawn_arrows().items()
                for target in sorted(targets) if (folder, target) not in real]
        self.assertEqual(idle, [])

    def test_python_includes_no_more_than_is_drawn(self):
        stray = [f"{path.relative_to(ROOT)} includes pareprop/{target}"
                 for path in sorted((ROOT / "python").rglob("*")) if path.suffix in (".h", ".cpp")
                 for target in re.findall(r'^#include "pareprop/(\w+)/', path.read_text(encoding="utf-8"), re.M)
                 if target in left_out_by("python")]
        self.assertEqual(stray, [])

    def test_one_header_includes_those_for_users(self):
        """But those of our own models."""
        users = set(re.findall(r"`(pareprop/[\w/]+\.h)`", section("Headers for users")))
        whole = "pareprop/pareprop.h"
        included = set(re.findall(r'^#include "(.*)"', (ROOT / whole).read_text(encoding="utf-8"), re.M))
        self.assertEqual(included, {header for header in users - {whole} if "/models/" not in header})

    def test_documents_include_headers_for_users_only(self):
        users = set(re.findall(r"`(pareprop/[\w/]+\.h)`", section("Headers for users")))
        self.assertTrue(users)
        for header in sorted(users):
            self.assertTrue((ROOT / header).is_file(), header)
        for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            code = "\n".join(re.findall(r"```cpp\n(.*?)```", document.read_text(encoding="utf-8"), re.S))
            for header in re.findall(r'#include ["<](pareprop/[\w/]+\.h)', code):
                self.assertIn(header, users, document.name)


if __name__ == "__main__":
    unittest.main()
