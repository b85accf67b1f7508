"""Makes one C++ file of all C++ blocks of the documents, so that what users read compiles and runs.

    doc_code.py ROOT OUT

A block is a program: its main() becomes a function, which is called unless the line before the block says "not run".
Includes are moved to the top.
"""
import pathlib
import re
import sys


def blocks(root):
    for document in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(r"^```cpp\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, match.start()) + 2
            before = text[:match.start()].rstrip("\n").rsplit("\n", 1)[-1]
            yield document.relative_to(root), line, match.group(1), "not run" not in before


def main():
    root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    includes, bodies, calls = {}, [], []
    for number, (document, line, code, runs) in enumerate(blocks(root)):
        for include in re.findall(r"^#include .*$", code, re.M):
            includes[include] = None
        # Blank, not gone: compilers then name the lines of the document.
        code = re.sub(r"^#include .*$", "", code, flags=re.M)
        # Only the real main() may end without a value.
        code = re.sub(r"}\s*\Z", "return 0;\n}\n", code)
        bodies.append(f'namespace block_{number} {{\n#line {line} "{document}"\n{code}}}\n')
        if runs:
            calls.append(f'  std::cout << "{document}:{line}\\n";\n  if (block_{number}::main() != 0) return 1;\n')
    out.write_text("\n".join(includes) + "\n#include <iostream>\n" + "".join(bodies) +
                   "int main() {\n" + "".join(calls) + "}\n", encoding="utf-8")


main()
