"""Lanes call Python while other threads of Python are busy; signals end a loop."""

import os
import signal
import subprocess
import sys
import threading
import time

import torch

import pareprop
from branches import blocks, loss_of
from conftest import cases


def test_no_deadlock_with_a_busy_thread():
    """PAREPROP_PYTHON_CASES=40 runs 2,000 passes."""
    stack = pareprop.Stack(blocks(3, width=4), "pareprop")
    x = torch.randn(1, 3, 4)
    stop = threading.Event()
    turns = [0]

    def busy():
        while not stop.is_set():
            turns[0] += sum(range(100)) > 0

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(cases(50)):
            loss_of(*stack(x, x)).backward()
    finally:
        stop.set()
        thread.join()
    assert turns[0] > 0


def test_two_threads_train_at_once():
    """Two stacks, and one stack of both threads."""
    shared = pareprop.Stack(blocks(2, width=4), "pareprop")
    errors = []

    def train(stack):
        try:
            x = torch.randn(1, 3, 4)
            for _ in range(30):
                y = stack(x, x)
                torch.autograd.grad(loss_of(*y), list(stack.parameters()))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    stacks = [shared, shared, pareprop.Stack(blocks(2, width=4), "pareprop")]
    threads = [threading.Thread(target=train, args=(stack,)) for stack in stacks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


LOOP = """
import sys
sys.path.insert(0, {tests!r})
import torch, pareprop
from branches import blocks, loss_of
stack = pareprop.Stack(blocks(8), "pareprop")
x = torch.randn(4, 64, 8)
loss_of(*stack(x, x)).backward()
print("ready", flush=True)
try:
    while True:
        loss_of(*stack(x, x)).backward()
except KeyboardInterrupt:
    stack.zero_grad()
    loss_of(*stack(x, x)).backward()
    print("clean", flush=True)
"""


def test_control_c_ends_a_training_loop():
    code = LOOP.format(tests=os.path.dirname(__file__))
    loop = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert loop.stdout.readline() == "ready\n"
    time.sleep(0.2)
    loop.send_signal(signal.SIGINT)
    out, errors = loop.communicate(timeout=60)
    assert (loop.returncode, out, errors) == (0, "clean\n", "")


def test_objects_that_outlive_the_interpreter_do_no_harm():
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import torch, pareprop\nfrom branches import blocks, loss_of\n"
        "stack = pareprop.Stack(blocks(2)); x = torch.randn(1, 2, 8)\n"
        "loss = loss_of(*stack(x, x)); stack.watch(print)\n"
        "import builtins; builtins.kept = [stack, loss, stack.drift]\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
