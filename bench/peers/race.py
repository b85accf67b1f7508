"""One row of the race: files, checks, memory, then turns."""

import importlib.util
import math
import os
import statistics
import sys
import time
from contextlib import ExitStack

from rows import (BARS, COMPILE_BUDGETS, HUGGING_FACE, HUGGING_FACE_FAMILIES, OTHER_RIVALS, RIVALS_BARS, SHARES,
                  SPLIT, STORED_FORMS, is_ours)
from workers import Contestant


class WrongGradients(RuntimeError):
    pass


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


class Race:
    """Of one row in one precision."""

    def __init__(self, row, precision, options, workers, folder):
        self.row, self.precision, self.options = row, precision, options
        self.workers, self.folder = workers, folder
        self.assistant = workers.assistant()
        self.racers, self.results = {}, {}
        self.contestants = [name for name in options.contestants if row.admits(name)]

    def file(self, name):
        return str(self.folder / name)

    def job(self, name, **more):
        return {"name": name, "model": self.row.model, "overrides": self.row.overrides,
                "precision": self.precision, "threads": self.options.threads,
                "weights": self.file("weights"), "batch": self.file("batch"), **more}

    def our_job(self, name):
        if name in SHARES:
            return self.job(name, mode="auto", share=SHARES[name], times=self.file(f"times-{self.row.label}"))
        return self.job(name, mode=name.removeprefix("ours_"))

    def torch_job(self, name, attention, **more):
        if name in SPLIT:
            rival, samples = SPLIT[name]
            more |= {"rival": "eager" if rival == "torch_stored" else rival.removeprefix("torch_"),
                     "micro_batch": samples}
        elif name in COMPILE_BUDGETS:
            more |= {"rival": "compile", "memory_budget": COMPILE_BUDGETS[name]}
        elif name in STORED_FORMS:
            more |= {"rival": "eager"}
        else:
            more |= {"rival": name.removeprefix("torch_")}
        return self.job(name, attention=attention, **more)

    def run(self):
        with ExitStack() as self.stack:
            model = self.make_files()
            attention = self.enter_all()
            for racer in self.racers.values():
                self.results[racer.name] |= self.measure_memory(racer, attention)
            gemm = self.measure_gemm()
            load = os.getloadavg()[0]
            self.take_turns()
        for result in self.results.values():
            result["median_ms"] = statistics.median(result["ms"])
            result["best_ms"] = min(result["ms"])
            result["samples_per_s"] = 1e3 * self.row.batch / result["median_ms"]
        ordered = {name: self.results[name] for name in self.contestants if name in self.results}
        return {"label": self.row.label, "model": self.row.model, "batch": self.row.batch,
                "overrides": self.row.overrides, "precision": self.precision, **model,
                "attention": attention, "load_before": load, "gemm": gemm, "contestants": ordered}

    def enter_all(self):
        """Returns the form of attention that is faster in PyTorch, which all but its eager rivals use."""
        forms = [name for name in self.contestants if name in STORED_FORMS]
        for name in forms:
            self.enter("torch", self.torch_job(name, STORED_FORMS[name]))
        best = {name: math.inf for name in forms}
        for name in 2 * forms:
            best[name] = min(best[name], self.estimate(name))
        attention = STORED_FORMS[min(best, key=best.get)] if forms else self.reference_form()
        for name in self.contestants:
            if is_ours(name):
                self.enter("ours", self.our_job(name))
            elif (name in OTHER_RIVALS or name in COMPILE_BUDGETS or name in SPLIT
                  or (name == HUGGING_FACE and self.has_hugging_face())):
                self.enter("torch", self.torch_job(name, attention))
        return attention

    def enter(self, side, job):
        racer = self.workers.start(side, job)
        self.stack.callback(racer.close)
        self.racers[racer.name] = racer
        self.check(racer, job)

    def make_files(self):
        maker = {"name": "maker", "model": self.row.model, "overrides": self.row.overrides,
                 "threads": self.options.threads}
        worker = self.workers.start("ours", maker)
        try:
            model = worker.ask(f"export {self.file('weights')} {self.file('batch')} "
                               f"{self.row.batch} {self.options.seed}")
        finally:
            worker.close()
        self.assistant.ask(f"perturb {self.file('weights')} {self.options.seed}")
        form = self.reference_form()
        self.ask_assistant(self.torch_job(f"torch_{form}", form, precision="fp32"),
                           f"gradients {self.file('expected')}")
        return model

    def reference_form(self):
        return "matmul" if self.row.admits("torch_matmul") else "sdpa"

    def ask_assistant(self, job, *commands):
        """The answer to the last one."""
        contestant = Contestant(self.assistant, job, alone=False)
        try:
            return [contestant.ask(command) for command in commands][-1]
        finally:
            contestant.close()

    def has_hugging_face(self):
        family = self.row.model.split("_")[0]
        if family not in HUGGING_FACE_FAMILIES:
            return False
        if family == "swin" and "image_size" in self.row.overrides:
            return False  # its Swin does not run where a map is smaller than a window
        if importlib.util.find_spec("transformers") is None:
            say("transformers is not installed: Hugging Face's networks are left out")
            return False
        return True

    def check(self, racer, job):
        """A few steps to get warm, then the gradients, before anything is timed."""
        result = self.results[racer.name] = {"ms": [], "attention": job.get("attention")}
        first = racer.ask(f"warm {self.options.warm}")
        if racer.ready.get("plan"):
            result["plan"] = racer.ready["plan"]
        if job.get("rival") == "compile":
            result["compile_s"] = first["seconds_of_first"]
        if racer.name != HUGGING_FACE:
            answer = racer.ask(f"gradients {self.file('got')}")
            difference = self.assistant.ask(f"compare {self.file('expected')} {self.file('got')}")
            result |= {"loss": answer["loss"], "gradient_difference": difference["difference"]}
            bar = (BARS if is_ours(racer.name) else RIVALS_BARS)[self.precision]
            if not difference["difference"] <= bar:
                raise WrongGradients(
                    f"{racer.name}: the gradient of {difference['where']} differs by "
                    f"{difference['difference']:.1e} of its norm; at most {bar:.0e} is allowed")
        say(f"{self.row.label} {self.precision}: {racer.name} is ready")

    def estimate(self, name):
        """Milliseconds of a step."""
        return statistics.median(self.racers[name].ask(f"steps {self.options.warm}")["ms"])

    def measure_memory(self, racer, attention):
        """Resident memory of the process that is timed; activations of PyTorch in another one, which
        has our allocator."""
        result = racer.ask("memory")
        result["rss_ready_bytes"] = racer.ready["rss_bytes"]
        if not is_ours(racer.name) and self.options.meter:
            own = STORED_FORMS.get(racer.name, attention)
            job = self.torch_job(racer.name, own, meter=str(self.options.meter))
            result |= self.ask_assistant(job, "warm 1", "memory")
        return result

    def measure_gemm(self):
        if self.options.gemm_seconds <= 0:
            return None
        job = self.torch_job(f"torch_{self.reference_form()}", self.reference_form())
        return self.ask_assistant(job, f"peak {self.options.gemm_side} {self.options.gemm_seconds}")

    def take_turns(self):
        names = list(self.racers)
        steps = max(self.options.steps, math.ceil(1e3 * self.options.turn_seconds / self.estimate(names[0])))
        begin = time.monotonic()
        for turn in range(self.options.rounds):
            if turn and time.monotonic() - begin > self.options.row_seconds:
                say(f"{self.row.label} {self.precision}: no time for more rounds")
                break
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                self.results[name]["ms"] += self.racers[name].ask(f"steps {steps}")["ms"]
            say(f"{self.row.label} {self.precision}: round {turn + 1} of {self.options.rounds}, "
                f"{steps} steps each")
