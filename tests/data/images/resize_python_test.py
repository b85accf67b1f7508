"""Images decoded and resized as Pillow does it. Called by ctest with the program that resize_probe.cpp is."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
    from PIL import Image
except ImportError as error:
    print(f"skipped: {sys.executable} has no {error.name}; pip install pillow numpy")
    sys.exit(77)

PROGRAM = ""
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SEED = 11


def resized(path, size, name, box, channels):
    out = path.with_suffix(".levels")
    left, top, right, bottom = box
    arguments = [path, out, size[1], size[0], name, top, left, bottom - top, right - left]
    subprocess.run([PROGRAM, *map(str, arguments)], check=True)
    return np.fromfile(out, np.float32).reshape(size[1], size[0], channels)


def levels_of_pillow(image, size, name, box):
    """Pillow keeps fractions only in images of one float channel."""
    planes = [Image.fromarray(plane.astype(np.float32)) for plane in
              np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)]
    return np.stack([np.asarray(p.resize(size, FILTERS[name], box)) for p in planes], axis=-1)


class Resize(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "image"
        self.random = np.random.default_rng(SEED)

    def check(self, image, size, box):
        channels = len(image.getbands())
        for name in FILTERS:
            with self.subTest(mode=image.mode, size=size, box=box, filter=name):
                ours = resized(self.path, size, name, box, channels)
                theirs = levels_of_pillow(image, size, name, box)
                # Float32 sums of levels up to 255 in another order.
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)
                # Pillow's bytes are rounded after each of both directions (and cut off, which the
                # levels of these images leave no need for).
                theirs = np.atleast_3d(np.asarray(image.resize(size, FILTERS[name], box)))
                difference = np.abs(np.clip(np.rint(ours), 0, 255) - theirs.astype(np.float32))
                self.assertLessEqual(difference.max(), 1)

    def test_noise(self):
        for shape in [(37, 53), (37, 53, 3)]:
            image = Image.fromarray(self.random.integers(64, 192, shape, np.uint8))
            image.save(self.path, "PNG")
            whole = (0, 0, 53, 37)
            for size in [(10, 7), (53, 37), (64, 80), (1, 1), (100, 5), (52, 36)]:
                self.check(image, size, whole)
            for box in [(5, 3, 40, 30), (0.5, 0.25, 33.75, 36.5), (20, 20, 21, 21)]:
                self.check(image, (16, 16), box)

    def test_jpeg(self):
        slope = np.linspace(0, 255, 90 * 70 * 3).reshape(90, 70, 3).astype(np.uint8)
        Image.fromarray(slope).save(self.path, "JPEG", quality=90, subsampling=0)
        with Image.open(self.path) as image:
            ours = resized(self.path, (70, 90), "bilinear", (0, 0, 70, 90), 3)
            # Two decoders, or two versions of one, round differently.
            self.assertLessEqual(np.abs(ours - np.asarray(image)).max(), 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
