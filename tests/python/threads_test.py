"""Lanes call Python while other threads of Python are busy; signals end a loop."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import pareprop
from branches import blocks, by_autograd, gradients, largest_error, loss_of
from conftest import cases

HERE = os.path.dirname(__file__)


class Noted(nn.Module):
    """Notes which threads call it."""

    def __init__(self, inner, threads):
        super().__init__()
        self.inner = inner
        self.threads = threads

    def forward(self, x):
        self.threads.add(threading.get_ident())
        return self.inner(x)


@pytest.fixture
def eager_threads():
    """A thread that waits for the interpreter gets it within 20 us, not within Python's usual 5 ms."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(20e-6)
    yield
    sys.setswitchinterval(usual)


def test_no_deadlock_with_a_busy_thread(eager_threads):
    """PAREPROP_PYTHON_CASES=40 runs 2,000 passes."""
    threads = set()
    stack = pareprop.Stack([(Noted(f, threads), Noted(g, threads)) for f, g in blocks(3, width=4)], "pareprop")
    lanes = set()
    stack.watch(lambda tasks: lanes.update((task.kind, task.lane) for task in tasks))
    x = torch.randn(1, 3, 4)
    parameters = list(stack.parameters())
    expected = gradients(parameters, lambda: by_autograd(stack, x, x))
    threads.clear()
    stop = threading.Event()
    turns = [0]

    def busy():
        while not stop.is_set():
            turns[0] += sum(range(100)) > 0

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(cases(50)):
            found = gradients(parameters, lambda: stack(x, x))
            assert largest_error(found, expected) < 1e-5
    finally:
        stop.set()
        thread.join()
    assert turns[0] > 0
    # Forward passes are on this thread; recoveries and gradients on it and on that of the other lane.
    assert len(threads) == 2 and threading.get_ident() in threads, threads
    assert {lane for kind, lane in lanes if kind in ("recover", "gradient")} == {0, 1}, lanes


class Waits(torch.autograd.Function):
    """Its gradient waits until an event is set."""

    @staticmethod
    def forward(ctx, x, event):
        ctx.event = event
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.event.wait(60), "nothing ran beside this gradient"
        return gradient, None


class Waiting(nn.Linear):
    def __init__(self, width, event):
        super().__init__(width, width)
        self.event = event

    def forward(self, x):
        return Waits.apply(super().forward(x), self.event)


class Announcing(Waiting):
    def forward(self, x):
        if torch.is_grad_enabled():  # in the recovery, not in the forward pass
            self.event.set()
        return nn.Linear.forward(self, x)


def test_a_branch_is_recovered_while_a_gradient_runs():
    recovered = threading.Event()
    pairs = [(nn.Linear(4, 4), Announcing(4, recovered)), (nn.Linear(4, 4), Waiting(4, recovered))]
    stack = pareprop.Stack(pairs, plan=pareprop.StackPlan(["reverse"] * 2, overlap=True, lookahead=2, tail=0))
    x = torch.randn(2, 4)
    loss = loss_of(*stack(x, x))
    assert not recovered.is_set()
    loss.backward()
    assert recovered.is_set()


def test_two_threads_train_at_once():
    """Two stacks, and one stack of both threads."""
    shared = pareprop.Stack(blocks(2, width=4), "pareprop")
    other = pareprop.Stack(blocks(2, width=4), "pareprop")
    x = torch.randn(1, 3, 4)
    expected = {}
    for stack in (shared, other):
        expected[stack] = torch.autograd.grad(loss_of(*by_autograd(stack, x, x)), list(stack.parameters()))
    errors = []
    begin = threading.Barrier(3)

    def train(stack):
        try:
            begin.wait(60)
            for _ in range(30):
                found = torch.autograd.grad(loss_of(*stack(x, x)), list(stack.parameters()))
                assert largest_error(found, expected[stack]) < 1e-5
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=train, args=(stack,)) for stack in (shared, shared, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# Sends itself the signal of Ctrl-C at moments that are named, in the third step or the first later one that has it:
# which lane recovers a branch is chance. The last one is not caught.
LOOP = """
import os, signal, sys, threading
sys.path.insert(0, {here!r})
import torch, pareprop
from torch import nn
from branches import Mlp, loss_of
moment, steps = "", 0

def here(now):
    global moment
    if now == moment and steps >= 3:
        moment = ""
        os.kill(os.getpid(), signal.SIGINT)

class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        here("gradient")
        return gradient

class Branch(Mlp):
    def forward(self, x):
        lane = "own" if threading.current_thread() is threading.main_thread() else "other"
        here("recovery on the %s lane" % lane if backward else "forward")
        return Gradient.apply(super().forward(x))

stack = pareprop.Stack([(Branch(8), Branch(8)) for _ in range(8)], "pareprop")
optimizer = torch.optim.SGD(stack.parameters(), 1e-3)
x, backward = torch.randn(4, 64, 8), False

def train():
    global steps, backward
    while steps < 1000:
        steps += 1
        backward = False
        loss = loss_of(*stack(x, x))
        here("between")
        optimizer.zero_grad()
        backward = True
        loss.backward()
        optimizer.step()
        here("after")

for name in {moments!r}:
    moment, steps = name, 0
    try:
        train()
        print(name, "never")
    except KeyboardInterrupt:
        backward = False
        optimizer.zero_grad()
        loss_of(*stack(x, x)).backward()
        assert all(parameter.grad is not None for parameter in stack.parameters())
        print(name, "clean")
moment, steps = "gradient", 0
print("last", flush=True)
train()
"""

MOMENTS = ["forward", "between", "gradient", "recovery on the own lane", "recovery on the other lane", "after"]


@pytest.fixture(scope="module")
def interrupted():
    """One process is interrupted at each of these moments."""
    code = LOOP.format(here=HERE, moments=MOMENTS)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("moment", MOMENTS)
def test_control_c_ends_a_training_loop(moment, interrupted):
    assert f"{moment} clean\n" in interrupted.stdout, interrupted


def test_control_c_ends_the_process(interrupted):
    """Where nothing catches it: by the signal, as Python's own loops, with the traceback alone."""
    assert interrupted.stdout.endswith("last\n") and interrupted.returncode == -signal.SIGINT, interrupted
    assert interrupted.stderr.startswith("Traceback") and interrupted.stderr.endswith("\nKeyboardInterrupt\n")
    assert interrupted.stderr.count("Traceback") == 1, interrupted.stderr


def test_objects_that_outlive_the_interpreter_do_no_harm():
    code = (
        f"import sys; sys.path.insert(0, {HERE!r})\n"
        "import torch, pareprop\nfrom branches import blocks, loss_of\n"
        "stack = pareprop.Stack(blocks(2)); x = torch.randn(1, 2, 8)\n"
        "loss = loss_of(*stack(x, x)); stack.watch(print)\n"
        "import builtins; builtins.kept = [stack, loss, stack.drift]\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
