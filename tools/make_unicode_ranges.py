#!/usr/bin/env python3
"""Writes pareprop/data/text/unicode_ranges.inc, the code points that the tokenizer has to tell apart, from
Python's unicodedata: python3 tools/make_unicode_ranges.py > pareprop/data/text/unicode_ranges.inc"""

import sys
import unicodedata


def class_of(code):
    category = unicodedata.category(chr(code))
    if category[0] == "L":
        return "letter"
    if category[0] == "N":
        return "number"
    # White_Space is every separator, and the controls that move a typewriter.
    if category[0] == "Z" or code in (*range(0x09, 0x0E), 0x85):
        return "space"
    return None


def ranges():
    first, kind = 0, None
    for code in range(sys.maxunicode + 2):
        now = class_of(code) if code <= sys.maxunicode else None
        if now != kind:
            if kind:
                yield f"{{0x{first:X}, 0x{code - 1:X}, {kind}}},"
            first, kind = code, now


def main():
    print(f"// Unicode {unicodedata.unidata_version}, by tools/make_unicode_ranges.py: first and last code point.")
    line = ""
    for item in ranges():
        if len(line) + 1 + len(item) > 100:
            print(line)
            line = ""
        line += (" " if line else "") + item
    print(line)


if __name__ == "__main__":
    main()
