#!/usr/bin/env python3
"""Pictures of the plots of a page that 'pareprop report' wrote: report_png.py REPORT.html FOLDER [--dark]

Each plot becomes FOLDER/ID.png, at twice the size. Needs Debian's chromium and chromium-driver.
"""

import argparse
import sys
from pathlib import Path

import browser


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dark", action="store_true", help="dark colours")
    parser.add_argument("--only", default="", help="plots whose id begins so, as in batch- or memory-")
    options = parser.parse_args()
    if not options.page.is_file():
        sys.exit(f"report_png: there is no page '{options.page}'; write it with 'pareprop report'")
    if browser.missing():
        sys.exit(f"report_png: install Debian's {browser.missing()} first")
    options.folder.mkdir(parents=True, exist_ok=True)
    with browser.Browser() as window:
        window.show(options.page, width=1280, dark=options.dark, scale=2)
        found = window.run("return [...document.querySelectorAll('figure[id]')].map(one => one.id)")
        wanted = [one for one in found if one.startswith(options.only)]
        if not wanted:
            sys.exit(f"report_png: '{options.page}' has no plot whose id begins with '{options.only}'")
        for one in wanted:
            (options.folder / f"{one}.png").write_bytes(window.picture(f"#{one}"))
    print(f"wrote {len(wanted)} pictures to {options.folder}")


if __name__ == "__main__":
    main()
