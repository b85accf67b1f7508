"""One row of the race: files, checks, memory, then turns."""

import importlib.util
import math
import os
import statistics
import sys
import time
from contextlib import ExitStack

from rows import (BARS, COMPILE_BUDGETS, HUGGING_FACE, HUGGING_FACE_FAMILIES, OTHER_RIVALS, RIVALS_BARS, SHARES,
                  SPLIT, STORED_FORMS, WITHIN, is_ours)
from workers import Contestant, WorkerError


class WrongGradients(RuntimeError):
    pass


class NobodyLeft(RuntimeError):
    pass


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


class Race:
    """Of one row in one precision."""

    def __init__(self, row, precision, options, workers, folder):
        self.row, self.precision, self.options = row, precision, options
        self.workers, self.folder = workers, folder
        self.assistant = workers.assistant()
        self.racers, self.results, self.failed = {}, {}, {}
        self.contestants = [name for name in options.contestants
                            if row.admits(name, precision) and not (options.totals and name in WITHIN)]

    def file(self, name):
        return str(self.folder / name)

    def job(self, name, **more):
        return {"name": name, "model": self.row.model, "overrides": self.row.overrides,
                "precision": self.precision, "threads": self.options.threads,
                "weights": self.file("weights"), "batch": self.file("batch"), **more}

    def our_job(self, name):
        times = self.file(f"times-{self.row.label}")
        if name in SHARES:
            return self.job(name, mode="auto", share=SHARES[name], totals=self.options.totals, times=times)
        if name in WITHIN:
            return self.job(name, mode="auto", bytes=WITHIN[name][0] << 20, times=times)
        return self.job(name, mode=name.removeprefix("ours_"))

    def torch_job(self, name, attention, **more):
        rival, samples = SPLIT.get(name, (name, None))
        if samples:
            more |= {"micro_batch": samples}
        if rival in COMPILE_BUDGETS:
            more |= {"rival": "compile", "memory_budget": COMPILE_BUDGETS[rival]}
        elif rival in STORED_FORMS or rival == "torch_stored":
            more |= {"rival": "eager"}
        else:
            more |= {"rival": rival.removeprefix("torch_")}
        return self.job(name, attention=attention, **more)

    def run(self):
        with ExitStack() as self.stack:
            model = self.make_files()
            self.stack.callback(self.workers.end, {rival for rival, _ in SPLIT.values()})
            attention = self.enter_all()
            self.expect_racers()
            for name in list(self.racers):
                self.attempt(name, lambda name=name: self.measure_memory(name, attention))
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
                "measure": "total" if self.options.totals else "activation",
                "attention": attention, "load_before": load, "gemm": gemm, "contestants": ordered,
                "failed": self.failed}

    def attempt(self, name, action):
        """Returns None when the contestant failed: the race goes on without it."""
        try:
            return action()
        except (WorkerError, WrongGradients) as error:
            say(f"{self.row.label} {self.precision} FAILED: {name}: {error}")
            self.failed[name] = str(error)
            self.results.pop(name, None)
            if name in self.racers:
                self.racers.pop(name).close()
            return None

    def expect_racers(self):
        if not self.racers:
            raise NobodyLeft("; ".join(f"{name}: {why}" for name, why in self.failed.items()) or "nobody races")

    def enter_all(self):
        """Returns the form of attention that is faster in PyTorch, which all but its eager rivals use."""
        for name in self.contestants:
            if name in STORED_FORMS:
                self.enter("torch", self.torch_job(name, STORED_FORMS[name]))
        best = {name: math.inf for name in self.racers}
        for name in 2 * list(best):
            if name in self.racers:
                best[name] = min(best[name], self.attempt(name, lambda name=name: self.estimate(name)) or math.inf)
        left = [name for name in best if name in self.racers]
        attention = STORED_FORMS[min(left, key=best.get)] if left else self.reference_form()
        for name in self.contestants:
            if is_ours(name):
                self.enter("ours", self.our_job(name))
            elif name in SPLIT:
                self.enter("torch", self.torch_job(name, attention), shared=SPLIT[name][0])
            elif name in OTHER_RIVALS or name in COMPILE_BUDGETS:
                self.enter("torch", self.torch_job(name, attention))
            elif name == HUGGING_FACE and self.has_hugging_face():
                self.enter("torch", self.torch_job(name, attention))
        return attention

    def enter(self, side, job, shared=None):
        """Into the process of that name, or into one of its own."""
        name = job["name"]

        def start():
            racer = self.racers[name] = self.workers.start(side, job, shared)
            self.stack.callback(racer.close)
            self.check(racer, job)
        self.attempt(name, start)

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
        return "matmul" if self.row.admits("torch_matmul", self.precision) else "sdpa"

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
                    f"the gradient of {difference['where']} differs by "
                    f"{difference['difference']:.1e} of its norm; at most {bar:.0e} is allowed")
        say(f"{self.row.label} {self.precision}: {racer.name} is ready")

    def estimate(self, name):
        """Milliseconds of a step."""
        return statistics.median(self.racers[name].ask(f"steps {self.options.warm}")["ms"])

    def measure_memory(self, name, attention):
        """Resident memory of the process that is timed; activations of PyTorch in another one, which
        has our allocator."""
        racer = self.racers[name]
        result = racer.ask("memory")
        result["rss_ready_bytes"] = racer.ready["rss_bytes"]
        if not is_ours(name) and self.options.meter:
            own = STORED_FORMS.get(name, attention)
            job = self.torch_job(name, own, meter=str(self.options.meter))
            result |= self.ask_assistant(job, "warm 1", "memory")
        self.results[name] |= result

    def measure_gemm(self):
        if self.options.gemm_seconds <= 0:
            return None
        job = self.torch_job(f"torch_{self.reference_form()}", self.reference_form())
        return self.ask_assistant(job, f"peak {self.options.gemm_side} {self.options.gemm_seconds}")

    def take_turns(self):
        self.expect_racers()
        first = next(iter(self.racers))
        taken = self.attempt(first, lambda: self.estimate(first)) or math.inf
        steps = max(self.options.steps, math.ceil(1e3 * self.options.turn_seconds / taken))
        names, begin = list(self.racers), time.monotonic()
        for turn in range(self.options.rounds):
            self.expect_racers()
            if turn and time.monotonic() - begin > self.options.row_seconds:
                say(f"{self.row.label} {self.precision}: no time for more rounds")
                break
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                answer = self.attempt(name, lambda name=name: self.racers[name].ask(f"steps {steps}"))
                if answer:
                    self.results[name]["ms"] += answer["ms"]
            say(f"{self.row.label} {self.precision}: round {turn + 1} of {self.options.rounds}, "
                f"{steps} steps each")
            names = [name for name in names if name in self.racers and not self.is_beaten(name)]
        self.expect_racers()

    def is_beaten(self, name):
        """Another rival was much faster with no more bytes of either kind."""
        def bytes_of(one):
            return [one.get(f"{kind}_peak_bytes") for kind in ("activation", "total")]
        own = self.results[name]
        if not self.options.leave_at or is_ours(name) or None in bytes_of(own):
            return False
        return any(not is_ours(other) and None not in bytes_of(one)
                   and all(a <= b for a, b in zip(bytes_of(one), bytes_of(own)))
                   and self.options.leave_at * statistics.median(one["ms"]) < statistics.median(own["ms"])
                   for other, one in self.results.items() if other in self.racers)
