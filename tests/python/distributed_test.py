"""Two processes: DistributedDataParallel, sending inside of the backward pass, and FSDP."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(__file__)


def run_two(way, tmp_path):
    script = os.path.join(HERE, "two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, way]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("good") == 2, done.stdout


@pytest.mark.parametrize("way", ["ddp", "overlap", "order", "fsdp"])
def test_two_processes(way, tmp_path):
    run_two(way, tmp_path)
