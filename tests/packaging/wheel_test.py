#!/usr/bin/env python3
"""A wheel is built as `pip wheel .` builds it, and used in a clean virtual environment beside torch.

    wheel_test.py SOURCE PYTHON SCRATCH

PYTHON is one that has torch. The build folder is that of `make python`, and ccache has what the build compiled.
"""

import os
import pathlib
import shutil
import subprocess
import sys

source, python, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
# As the build does: ccache tells compilers apart by their names.
environment.update(CC="cc", CXX="c++", CCACHE_BASEDIR=source, CCACHE_NOHASHDIR="true")


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, env={**environment, **more})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


pip = (python, "-m", "pip", "--disable-pip-version-check")
offline = ("--no-deps", "--no-build-isolation", "--no-index")
run(*pip, "wheel", *offline, "-C", f"build-dir={source}/build-python", "-w", str(scratch), source)
(wheel,) = scratch.glob("pareprop-*.whl")
size = wheel.stat().st_size
print(f"{wheel.name}: {size / 1e6:.1f} MB")
assert size < 40e6

clean = scratch / "clean"
run(python, "-m", "venv", "--without-pip", str(clean))
(packages,) = clean.glob("lib/python*/site-packages")
torch = run(python, "-c", "import torch; print(torch.__path__[0])").strip()
(packages / "torch.pth").write_text(f"{pathlib.Path(torch).parent}\n")
run(*pip, "--python", str(clean / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel))

LINES = """
import pathlib, sys, torch, pareprop
from torch import nn
assert pathlib.Path(pareprop.__file__).is_relative_to(sys.prefix), pareprop.__file__
branch = lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
stack = pareprop.Stack([(branch(), branch()) for _ in range(3)])
optimizer = torch.optim.AdamW(stack.parameters(), 1e-2)
x, losses = torch.randn(16, 8), []
for step in range(30):
    loss = nn.functional.mse_loss(sum(stack(x, x)), x.flip(1))
    optimizer.zero_grad(); loss.backward(); optimizer.step(); losses.append(loss.item())
assert losses[-1] < 0.9 * losses[0], losses
print(pareprop.__version__)
"""
version = run(str(clean / "bin" / "python"), "-W", "error", "-c", LINES).strip()
assert f"-{version}-" in wheel.name, (version, wheel.name)

path = f"{clean / 'bin'}{os.pathsep}{os.environ['PATH']}"
assert version in run("pareprop", "--version", PATH=path), version
assert "vit_small" in run("pareprop", "models", PATH=path)

# What messages of the program name.
for converter in ("convert_pickle", "convert_slowfast"):
    assert "usage: " in run(str(clean / "bin" / "python"), "-m", f"pareprop.{converter}", "--help")
