"""TensorBoard reads what our event files hold. Called by ctest with the program that event_probe.cpp is."""

import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}; pip install tensorboard")
    sys.exit(77)

PROGRAM = ""


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class EventFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, *events):
        arguments = [str(part) for event in events for part in event]
        subprocess.run([PROGRAM, str(self.folder), *arguments], check=True)

    def scalars(self, name):
        accumulator = EventAccumulator(str(self.folder))
        accumulator.Reload()
        return [(event.step, event.value) for event in accumulator.Scalars(name)]

    def test_values_steps_and_times(self):
        values = [(0, 2.5), (1, -1e-30), (200, 3.4e38), (2**40, 0.1), (2**62, float("inf"))]
        before = time.time()
        self.write(*[(step, "train/löss", value) for step, value in values])
        self.assertEqual(self.scalars("train/löss"), [(step, float32(value)) for step, value in values])
        accumulator = EventAccumulator(str(self.folder))
        accumulator.Reload()
        for event in accumulator.Scalars("train/löss"):
            self.assertGreaterEqual(event.wall_time, before - 1)
            self.assertLessEqual(event.wall_time, time.time() + 1)
        (path,) = self.folder.iterdir()
        events = list(LegacyEventFileLoader(str(path)).Load())
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual(len(events), 1 + len(values))

    def test_what_comes_after_a_cut_record_is_read(self):
        self.write((1, "a", 1), (2, "a", 2))
        (path,) = self.folder.iterdir()
        path.write_bytes(path.read_bytes()[:-3])
        self.write((3, "a", 3), ("open", "-", "-"), (4, "a", 4))
        self.assertEqual(self.scalars("a"), [(1, 1), (3, 3), (4, 4)])

    def test_a_restart_drops_later_steps(self):
        self.write(*[(step, "a", step) for step in range(1, 6)], ("open", "-", "-"), ("restart", 3, "-"),
                   (3, "a", 30), (4, "a", 40))
        self.assertEqual(self.scalars("a"), [(1, 1), (2, 2), (3, 30), (4, 40)])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
