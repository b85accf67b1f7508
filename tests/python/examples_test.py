"""Every example runs, shortened where it takes an argument --steps."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ.get("PAREPROP_SOURCE", pathlib.Path(__file__).parents[2]))
EXAMPLES = SOURCE / "examples" / "python"


def run(*command, expected=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def test_own_model():
    assert "loss" in run(str(EXAMPLES / "own_model.py"), "--steps", "5")


def test_reversible_gpt():
    printed = run(str(EXAMPLES / "reversible_gpt.py"), "--steps", "21")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) >= 2 and losses[-1] < 0.9 * losses[0], printed


def test_two_processes():
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert "loss" in run(*launch, str(EXAMPLES / "two_processes.py"), "--steps", "3")


def test_lora():
    pytest.importorskip("peft")
    printed = run(str(EXAMPLES / "lora.py"), "--steps", "40")
    assert "trainable params" in printed and printed.count(" yes") >= 4, printed


def test_hugging_face_within_a_budget():
    pytest.importorskip("accelerate")
    example = str(EXAMPLES / "hugging_face_vit.py")
    assert "the same losses within the budget" in run(example, "--small")
    # With a fit that does nothing the budget is not kept.
    code = "import pareprop, runpy; fit = pareprop.fit; pareprop.fit = lambda m, s, b: fit(m, s, '1TiB'); "
    code += f"import sys; sys.argv = ['x', '--small']; runpy.run_path({example!r})"
    assert "outside of the budget" in run("-c", code, expected=1)
