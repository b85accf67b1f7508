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

    def test_every_arrow_is_needed(self):
        real = {(folder, target) for _, folder, target in includes()}
        idle = [f"{folder} -> {target}" for folder, targets in drawn_arrows().items()
                for target in sorted(targets) if (folder, target) not in real]
        self.assertEqual(idle, [])

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
