"""Makes C++ files of all C++ blocks of the documents, so that what users read compiles and runs.

    doc_code.py ROOT OUT    writes OUT/doc_code.cpp and OUT/doc_code_narrow.cpp

A block is a program: its main() becomes a function, which is called unless the line before the block says "not run".
Each block must compile with its own includes. Compiling each alone would take minutes, because of torch/torch.h. So the
blocks of a file share a set of includes of torch and pareprop: doc_code.cpp has those with all of both, the other file
those with less. Headers of the standard library are compared with the names that a block uses: torch/torch.h includes
nearly all of them, so a compiler would not miss one. A block after "This is `FILE`:" must be that file.
"""
import pathlib
import re
import sys

STANDARD = {
    "algorithm": r"std::(min|max|sort|find|find_if|copy|clamp|any_of|all_of)\b",
    "fstream": r"std::[io]?fstream\b",
    "functional": r"std::function\b",
    "iostream": r"std::(cout|cerr)\b",
    "memory": r"std::(shared_ptr|make_shared|unique_ptr|make_unique)\b",
    "optional": r"std::(optional|nullopt)\b",
    "string": r"std::(string|to_string)\b",
    "vector": r"std::vector\b",
}

WIDE = {"torch/torch.h", "pareprop/pareprop.h"}


class Block:
    def __init__(self, document, line, code, runs):
        self.document, self.line, self.runs = document, line, runs
        self.place = f"{document}:{line}"
        self.includes = set(re.findall(r'^#include [<"](.*)[>"]$', code, re.M))
        # Blank, not gone: compilers then name the lines of the document.
        code = re.sub(r"^#include .*$", "", code, flags=re.M)
        # Only the real main() may end without a value.
        self.code = re.sub(r"}\s*\Z", "return 0;\n}\n", code)

    def own_includes(self):
        """Not those of the standard library."""
        return {header for header in self.includes if "/" in header}

    def complaints(self):
        for header, names in STANDARD.items():
            used, included = re.search(names, self.code), header in self.includes
            if used and not included:
                yield f"{self.place}: uses {used[0]} without #include <{header}>"
            if included and not used:
                yield f"{self.place}: #include <{header}> is for nothing"


def blocks(root):
    for document in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(r"^```cpp\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, match.start()) + 2
            before = text[:match.start()].rstrip("\n").rsplit("\n", 1)[-1]
            block = Block(document.relative_to(root), line, match.group(1), "not run" not in before)
            example = re.fullmatch(r"This is `(.*)`:", before)
            if example and (root / example[1]).read_text(encoding="utf-8") != match.group(1):
                sys.exit(f"{block.place}: is not what {example[1]} is")
            yield block


def program(name, found):
    """A file with a function of that name, which runs the blocks; false: one failed."""
    includes = sorted(set().union(*(block.includes for block in found)))
    text = "".join(f"#include <{header}>\n" for header in includes)
    calls = ""
    for block in found:
        space = f"block_{block.line}_of_{re.sub(r'[^a-z]', '_', str(block.document).lower())}"
        text += f'namespace {space} {{\n#line {block.line} "{block.document}"\n{block.code}}}\n'
        if block.runs:
            calls += f'  std::puts("{block.place}");\n  if ({space}::main() != 0) return false;\n'
    return f"{text}#include <cstdio>\nbool {name}() {{\n{calls}  return true;\n}}\n"


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = list(blocks(root))
    wide = [block for block in found if WIDE <= block.own_includes()]
    narrow = [block for block in found if block not in wide]
    wrong = [complaint for block in found for complaint in block.complaints()]
    wrong += [f"{block.place}: includes other headers than {narrow[0].place}, which shares its file; give it a file of "
              "its own in tests/house/doc_code.py"
              for block in narrow if block.own_includes() != narrow[0].own_includes()]
    wrong += [f"{block.place}: includes more than torch/torch.h and pareprop/pareprop.h, which the blocks beside it then "
              "have too" for block in wide if block.own_includes() != WIDE]
    if wrong:
        sys.exit("\n".join(wrong))
    (out / "doc_code.cpp").write_text(
        program("wide", wide) + "bool narrow();\nint main() { return wide() && narrow() ? 0 : 1; }\n", encoding="utf-8")
    (out / "doc_code_narrow.cpp").write_text(program("narrow", narrow), encoding="utf-8")


main()
