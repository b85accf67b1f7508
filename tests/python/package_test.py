"""The package itself: its version, its types, its import."""

import os
import pathlib
import re
import subprocess
import sys

import pareprop

SOURCE = pathlib.Path(os.environ.get("PAREPROP_SOURCE", pathlib.Path(__file__).parents[2]))
PACKAGE = pathlib.Path(pareprop.__file__).parent


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options)


def test_version_is_that_of_the_project():
    assert f"project(pareprop VERSION {pareprop.__version__} " in (SOURCE / "CMakeLists.txt").read_text()


def test_import_is_clean():
    done = run("-W", "error", "-c", "import pareprop")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_torch_is_refused_in_one_sentence():
    done = run("-c", "import torch; torch.__version__ = '2.14.0'; import pareprop")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: pareprop") and "was built for torch 2.13, and this is torch 2.14.0" in last


def test_types():
    assert (PACKAGE / "py.typed").exists()
    done = run("-m", "mypy", "--config-file", str(SOURCE / "pyproject.toml"), "-p", "pareprop", "--cache-dir=/dev/null")
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_name_what_the_extension_has():
    stub = (PACKAGE / "_core.pyi").read_text()
    declared = set(re.findall(r"^(?:class|def) (\w+)", stub, re.M))
    core = pareprop._core
    real = {name for name in dir(core) if not name.startswith("_")}
    assert declared == real
    for name in declared:
        if isinstance(getattr(core, name), type):
            body = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", stub, re.M | re.S).group(0)
            methods = set(re.findall(r"def (\w+)", body)) - {"__init__"}
            own = {method for method in vars(getattr(core, name)) if not method.startswith("_")}
            assert methods == own, name


def test_everything_public_has_a_docstring():
    for name in pareprop.__all__:
        if name != "__version__":
            assert getattr(pareprop, name).__doc__, name
