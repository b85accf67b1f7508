"""One thread for each operator: exact streams promise the same bits only if sums are split in the same way."""

import os

import pytest
import torch

torch.set_num_threads(1)


def cases(usual):
    """How many random cases to run; PAREPROP_PYTHON_CASES=10 runs ten times as many."""
    return max(1, int(usual * float(os.environ.get("PAREPROP_PYTHON_CASES", "1"))))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
