"""PyTorch's contestants, driven by run.py line by line as worker.cpp is. A line that is a JSON object
is a job:
    {"name": ..., "rival": "eager" | "compile" | "checkpoint" | "reversible" | "hugging_face",
     "attention": "sdpa" | "matmul", "model": ..., "precision": "fp32" | "bf16", "threads": N,
     "weights": FILE, "batch": FILE, "meter": LIBRARY or null, "memory_budget": 0 to 1, of compile,
     "micro_batch": samples at a time, all when not given}
Commands for the last job, or for that of another name after "use NAME":
    gradients FILE, warm N, steps N, memory: as in worker.cpp
    peak SIDE SECONDS   what matrix products reach, square ones and those of the step
and for none in particular:
    perturb FILE SEED           adds noise to weights, so that no gradient is there by symmetry
    compare EXPECTED GOT        the largest relative difference of two files of gradients
    drop NAME                   forgets a job
"""

import ctypes
import gc
import json
import os
import sys
import time

import torch
import torch._functorch.config as functorch
from safetensors.torch import load_file, save_file

import gemm
import networks


class Meter:
    """The library's allocator in this process. Gradients are told to it as they are made; weights
    and batch are there before a step, and what is live then is subtracted."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("activation_live", "activation_peak", "total_live", "total_peak"):
            getattr(self.library, f"peers_meter_{name}").restype = ctypes.c_int64
        self.library.peers_meter_gradient.argtypes = [ctypes.c_void_p]
        self.library.peers_meter_install()

    def watch_gradients(self, network):
        def tell(parameter):
            self.library.peers_meter_gradient(parameter.grad.untyped_storage()._cdata)
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(tell)

    def peaks(self, step):
        """Of activations, and of all that a step makes."""
        activations, total = self.library.peers_meter_activation_live(), self.library.peers_meter_total_live()
        self.library.peers_meter_reset_peaks()
        step()
        return (self.library.peers_meter_activation_peak() - activations,
                self.library.peers_meter_total_peak() - total)


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def process_bytes(name):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def reset_process_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return True
    except OSError:
        return False


def give_back():
    """Unused memory to the system: the others need the room."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def compiled(loss, memory_budget):
    """By inductor, with torch's own knob. Each call has a backend of its own: with the same one, dynamo would
    take the code of another network of this class in this process, and its budget."""
    from torch._inductor.compile_fx import compile_fx

    def backend(graph, inputs):
        with functorch.patch(activation_memory_budget=memory_budget):
            return compile_fx(graph, inputs)
    # Micro-batches of other sizes in this process must not have it compiled for all sizes.
    return torch.compile(loss, backend=backend, dynamic=False)


class Contestant:
    def __init__(self, job):
        torch.set_num_threads(job["threads"])
        state, batch = load_file(job["weights"]), load_file(job["batch"])
        rival, self.precision = job["rival"], job["precision"]
        if rival == "hugging_face":
            from networks import hugging_face
            self.network = hugging_face.make(job["model"], state, batch)
        else:
            strategy = rival if rival in ("checkpoint", "reversible") else "stored"
            self.network = networks.make(job["model"], state, batch, job["attention"], strategy)
        self.parts = self.split(batch, job.get("micro_batch", len(batch["input"])))
        self.batch_bytes = bytes_of(batch.values())
        self.loss = self.network.loss
        if rival == "compile":
            self.loss = compiled(self.loss, job.get("memory_budget", functorch.activation_memory_budget))
        self.meter = Meter(job["meter"]) if job.get("meter") else None
        if self.meter:
            self.meter.watch_gradients(self.network)

    def split(self, batch, samples):
        """Inputs, targets and share of the rows of each part."""
        parts = [self.network.prepare({name: value[first:first + samples] for name, value in batch.items()})
                 for first in range(0, len(batch["input"]), samples)]
        rows = sum(len(targets) for _, targets in parts)
        return [(inputs, targets, len(targets) / rows) for inputs, targets in parts]

    def backward(self):
        total = 0.0
        for inputs, targets, share in self.parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.loss(inputs, targets)
            if len(self.parts) > 1:
                loss = loss * share
            loss.backward()
            total += loss.item()
        return total

    def step(self):
        self.backward()
        self.network.zero_grad(set_to_none=True)

    def gradients(self, file):
        loss = self.backward()
        missing = [name for name, p in self.network.named_parameters() if p.grad is None]
        if missing:
            raise RuntimeError(f"no gradient for {', '.join(missing)}")
        save_file({name: p.grad.contiguous() for name, p in self.network.named_parameters()}, file)
        self.network.zero_grad(set_to_none=True)
        give_back()
        return {"loss": loss}

    def warm(self, count):
        begin = time.perf_counter()
        self.step()
        first = time.perf_counter() - begin
        for _ in range(int(count) - 1):
            self.step()
        give_back()
        return {"seconds_of_first": first}

    def steps(self, count):
        self.step()
        times = []
        for _ in range(int(count)):
            begin = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - begin))
        give_back()
        return {"ms": times}

    def memory(self):
        give_back()
        reset = reset_process_peak()
        if self.meter:
            activations, made = self.meter.peaks(self.step)
            return {"activation_peak_bytes": activations,
                    "total_peak_bytes": made + self.batch_bytes + bytes_of(self.network.parameters())}
        self.step()
        peak = process_bytes("VmHWM")
        give_back()
        return {"rss_peak_bytes": peak, "rss_reset": reset}

    def peak(self, side, seconds):
        with gemm.GemmRecorder() as recorder:
            self.step()
        return gemm.peak(self.precision, recorder.rows(), int(side), float(seconds))


def perturb(file, seed):
    generator = torch.Generator().manual_seed(int(seed))
    state = load_file(file)
    save_file({name: value + 0.02 * torch.randn(value.shape, generator=generator)
               for name, value in sorted(state.items())}, file)
    return {}


def compare(expected, got):
    """As max_relative_error in pareprop/ops/compare.h, and where it is."""
    expected, got = load_file(expected), load_file(got)
    if expected.keys() != got.keys():
        odd = sorted(expected.keys() ^ got.keys())
        raise RuntimeError(f"only one side has gradients for {', '.join(odd)}")
    norms = {name: value.double().norm().item() for name, value in expected.items()}
    least = 1e-4 * max(norms.values())
    worst, where = 0.0, ""
    for name, value in expected.items():
        error = (value.double() - got[name].double()).norm().item()
        relative = error / max(norms[name], least, 1e-300)
        if not relative <= worst:  # also when it is no number
            worst, where = relative, name
        if relative != relative:
            break
    return {"difference": worst, "where": where}


class Server:
    def __init__(self):
        self.contestants, self.current = {}, None

    def answer(self, line):
        if line.startswith("{"):
            job = json.loads(line)
            self.current = Contestant(job)
            self.contestants[job["name"]] = self.current
            return {"ready": True, "rss_bytes": process_bytes("VmRSS")}
        command, *words = line.split()
        if command == "use":
            self.current = self.contestants[words[0]]
            return self.answer(" ".join(words[1:]))
        if command == "drop":
            dropped = self.contestants.pop(words[0], None)
            self.current = None if self.current is dropped else self.current
            del dropped
            if not self.contestants:
                torch._dynamo.reset()  # it compiles a function only so many times
            give_back()
            return {}
        if command in ("perturb", "compare"):
            return globals()[command](*words)
        if command in ("gradients", "warm", "steps", "memory", "peak"):
            return getattr(self.current, command)(*words)
        raise ValueError(f"unknown command '{line}'")


def main():
    # Whatever else is printed goes to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.freeze()  # what the imports made need not be searched by every collection
    server = Server()
    for line in sys.stdin:
        line = line.strip()
        if line == "quit":
            break
        try:
            result = server.answer(line)
        except Exception as error:  # told to the driver, which decides
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
