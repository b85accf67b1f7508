"""Two processes: DistributedDataParallel, sending inside of the backward pass, and FSDP."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(__file__)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What both processes print: they are started once."""
    script = os.path.join(HERE, "two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("two")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder)
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", ["ddp", "overlap", "order", "fsdp"])
def test_two_processes(way, printed):
    assert printed.count(f"{way} is good") == 2, printed
