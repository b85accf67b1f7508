"""`pareprop trace` from outside: its JSON as Perfetto reads it, or by the rules of the format; its picture; bad input."""

import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from collections import defaultdict
from pathlib import Path

PROGRAM = sys.argv.pop(1)
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "2000"}
TASKS = {"recover", "gradient", "weight gradient"}
TAGS = {"parameters", "gradients", "optimizer", "streams", "tape", "other"}

# Milliseconds in which a recovery ran while a gradient did. With two lanes there is at most one beside it, so sums of
# pairs count nothing twice.
BESIDE = """
select sum(max(0, min(r.ts + r.dur, g.ts + g.dur) - max(r.ts, g.ts))) / 1e6 as ms
from slice r join slice g
where r.category = 'recover' and g.category in ('gradient', 'weight gradient')
  and g.ts < r.ts + r.dur and r.ts < g.ts + g.dur
"""
RECOVER = "select sum(dur) / 1e6 as ms from slice where category = 'recover'"


def run(*arguments, check=True):
    done = subprocess.run([PROGRAM, "trace", *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=300)
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def perfetto_queries(path):
    """Perfetto's own engine on the file; None, and why not, where it cannot be had."""
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    except ImportError:
        return None, "the package perfetto is not installed"
    try:
        config = TraceProcessorConfig(bin_path=os.environ.get("PAREPROP_TRACE_PROCESSOR"))
        return TraceProcessor(trace=str(path), config=config), ""
    except Exception as error:  # it is fetched when it is first used
        return None, f"trace_processor_shell cannot be had ({error}); PAREPROP_TRACE_PROCESSOR may name it"


class TraceProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.file = cls.folder / "trace.json"
        for _ in range(5):  # where other programs want the cores, the lanes may take turns in a step this short
            cls.printed = run("--model", "swin_cifar", "--mode", "pareprop", "--batch", 8, "--out", cls.file, "--svg",
                              cls.folder / "step.svg", "--json", cls.folder / "summary.json").stdout
            if json.loads((cls.folder / "summary.json").read_text())["overlap"] > 0:
                break
        cls.trace = json.loads(cls.file.read_text())
        cls.events = cls.trace["traceEvents"]
        cls.slices = [event for event in cls.events if event["ph"] == "X"]
        cls.summary = json.loads((cls.folder / "summary.json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def rows(self):
        return {event["tid"]: event["args"]["name"] for event in self.events if event["name"] == "thread_name"}

    def test_keeps_the_rules_of_the_format(self):
        self.assertEqual({event["ph"] for event in self.events}, {"M", "X", "C"})
        ends = defaultdict(float)
        for event in self.slices:
            for key in ("ts", "dur"):
                self.assertTrue(isinstance(event[key], (int, float)) and math.isfinite(event[key]), event)
            self.assertGreaterEqual(event["dur"], 0)
            self.assertIsInstance(event["name"], str)
            # Slices of a row come in order and do not overlap.
            row = event["pid"], event["tid"]
            self.assertGreaterEqual(event["ts"], ends[row] - 1e-3, event)
            ends[row] = event["ts"] + event["dur"]
            self.assertLessEqual(ends[row], self.summary["step_ms"] * 1e3 + 1)
        self.assertEqual({tid for _, tid in ends}, set(self.rows()))
        times = [event["ts"] for event in self.events if event["ph"] == "C"]
        self.assertEqual(times, sorted(times))
        for event in self.events:
            if event["ph"] == "C":
                self.assertTrue(all(isinstance(value, int) for value in event["args"].values()), event)

    def test_has_a_row_for_each_kind(self):
        names = list(self.rows().values())
        kinds = {name.split(" ", 2)[2] if name.startswith("lane ") else name for name in names}
        self.assertEqual(kinds, {"data", "forward", "other backward", "optimizer"} | TASKS)
        self.assertEqual(names[:2], ["data", "forward"])
        self.assertTrue(any(name.startswith("lane 1 ") for name in names), names)

    def test_names_every_task_by_its_stage(self):
        # swin_cifar: two stages of two blocks.
        gradients = {event["name"] for event in self.slices if event["cat"] == "gradient"}
        self.assertEqual(gradients, {f"stage {s} gradient {b}{i}" for s in (1, 2) for b in "FG" for i in (0, 1)})
        others = [event["name"] for event in self.slices if event["cat"] == "other backward"]
        self.assertEqual(others, ["head and loss", "boundary of stages 1 and 2", "embedding"])
        for event in self.slices:
            if event["cat"] in TASKS:
                self.assertTrue(event["name"].startswith(f"stage {event['args']['stage']} "), event)
            self.assertNotIn("below", event["name"])

    def test_counts_memory(self):
        by_tag = [event["args"] for event in self.events if event["ph"] == "C" and event["name"] == "memory"]
        in_all = [event["args"]["bytes"] for event in self.events if event["ph"] == "C" and event["name"] != "memory"]
        self.assertGreater(len(by_tag), 50)
        self.assertEqual(len(by_tag), len(in_all))
        self.assertTrue(all(set(args) == TAGS for args in by_tag))
        self.assertEqual(max(in_all), self.summary["sampled_peak_bytes"])
        self.assertLessEqual(max(in_all), self.summary["peak_bytes"])
        self.assertGreater(max(in_all), 0.8 * self.summary["peak_bytes"])
        self.assertGreater(max(args["tape"] for args in by_tag), 0)

    def check_overlap(self, query):
        beside, recover = query(BESIDE) or 0, query(RECOVER)
        self.assertGreater(beside, 0)
        self.assertAlmostEqual(recover, self.summary["recover_ms"], delta=0.01 * recover)
        self.assertAlmostEqual(beside, self.summary["beside_gradient_ms"], delta=0.01 * beside)
        self.assertAlmostEqual(beside / recover, self.summary["overlap"], delta=0.01)
        for key in ("recover_ms", "beside_gradient_ms"):
            self.assertAlmostEqual(sum(stage[key] for stage in self.summary["stages"]), self.summary[key], places=3)
        self.assertEqual(self.trace["otherData"]["overlap"], self.summary["overlap"])

    def test_overlap_is_what_sql_finds(self):
        data = sqlite3.connect(":memory:")
        data.execute("create table slice (ts integer, dur integer, category text)")
        data.executemany("insert into slice values (?, ?, ?)",
                         [(round(e["ts"] * 1e3), round(e["dur"] * 1e3), e["cat"]) for e in self.slices])
        self.check_overlap(lambda sql: data.execute(sql).fetchone()[0])

    def test_overlap_is_what_perfetto_finds(self):
        engine, why_not = perfetto_queries(self.file)
        if engine is None:
            self.skipTest(why_not)
        with engine:
            self.check_overlap(lambda sql: next(iter(engine.query(sql))).ms)
            self.assertEqual(next(iter(engine.query("select count(*) as n from slice"))).n, len(self.slices))
            rows = {row.name for row in engine.query("select name from thread where name is not null")}
            self.assertLessEqual(set(self.rows().values()), rows)
            peak = next(iter(engine.query("select max(value) as bytes from counter"))).bytes
            self.assertEqual(peak, self.summary["sampled_peak_bytes"])
            lost = "select sum(value) as n from stats where severity in ('error', 'data_loss')"
            self.assertEqual(next(iter(engine.query(lost))).n, 0)

    def test_draws_a_picture(self):
        root = xml.etree.ElementTree.parse(self.folder / "step.svg").getroot()
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for expected in ("training", "lane 0", "lane 1", "tape"):
            self.assertIn(expected, words)

    def test_says_what_it_found(self):
        for expected in ("beside a gradient", "stage", "all", "peak ", str(self.file)):
            self.assertIn(expected, self.printed)

    def test_json_alone_on_standard_output(self):
        done = run("--model", "vit_cifar", "--depth", 2, "--batch", 1, "--steps", 1, "--out", self.folder / "t.json",
                   "--json", "-")
        self.assertEqual(json.loads(done.stdout)["stages"][0]["stage"], 1)

    def test_a_plain_network_has_its_tasks(self):
        file = self.folder / "plain.json"
        for mode in "stored", "checkpoint":
            run("--model", "swin_cifar", "--plain", "--mode", mode, "--batch", 1, "--steps", 1, "--out", file)
            names = {event["name"] for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"}
            self.assertLessEqual({"embedding", "stage 1 forward F0", "stage 2 gradient G1"}, names)
            self.assertEqual("stage 1 recover F0" in names, mode == "checkpoint")

    def test_refuses_bad_input_and_writes_nothing(self):
        file = self.folder / "bad.json"
        small = ["--model", "vit_cifar", "--depth", 1]
        for arguments, said in (
            (["--mode", "fast"], "pareprop"),
            (["--steps", 0], "--steps: expected 1 or more, got 0"),
            (["--batch", 0], "--batch: expected 1 or more, got 0"),
            (["--plain", "--mode", "pareprop"], "stored"),
            (["--precision", "fp8"], "bf16"),
            (["--svg", self.folder / "no" / "step.svg"], "there is no folder"),
            (["--json", self.folder / "no" / "summary.json"], "there is no folder"),
        ):
            done = run(*small, "--out", file, *arguments, check=False)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertFalse(file.exists(), arguments)
        done = run(*small, "--out", self.folder / "no" / "trace.json", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("there is no folder", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
