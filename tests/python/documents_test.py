"""The Python of the documents, run."""

import os
import pathlib
import re

import pytest

SOURCE = pathlib.Path(os.environ.get("PAREPROP_SOURCE", pathlib.Path(__file__).parents[2]))


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_code_of_a_document(document, tmp_path, monkeypatch):
    """The pieces of a document follow one another, in one module."""
    monkeypatch.chdir(tmp_path)
    text = (SOURCE / document).read_text(encoding="utf-8")
    pieces = re.findall(r"```python\n(.*?)```", text, re.S)
    assert pieces
    module = {"__name__": "document"}
    for piece in pieces:
        exec(compile(piece, document, "exec"), module)
