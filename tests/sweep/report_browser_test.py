"""The page of 'pareprop report' in a real browser: every plot is there and seen, wide and narrow, light and dark."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import browser  # noqa: E402

PROBE = sys.argv.pop(1)
SKIPPED = 77
KINDS = {"batch": 4, "gain": 4, "memory": 4, "depth": 1, "phase": 4, "busy": 4}

# Of each plot: its box, and whether what it draws is inside.
PLOTS = """
return [...document.querySelectorAll('figure[id]')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const outside = [...svg.querySelectorAll('text, circle, path, rect')].filter(one => {
    const own = one.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 ||
           own.bottom > box.bottom + 1;
  });
  const text = svg.querySelector('text:not(.title)');
  return {id: figure.id, left: box.left, right: box.right, width: box.width, height: box.height,
          drawn: svg.querySelectorAll('circle, path, .bar').length,
          outside: outside.map(one => one.outerHTML),
          ink: getComputedStyle(text).fill, paper: getComputedStyle(svg.querySelector('.paper')).fill,
          letters: Math.min(...[...svg.querySelectorAll('text')].map(
              one => parseFloat(getComputedStyle(one).fontSize) * box.width / svg.viewBox.baseVal.width))};
});
"""
PAGE = """
const style = getComputedStyle(document.body);
return {wide: document.documentElement.scrollWidth, window: innerWidth, colour: style.color,
        background: style.backgroundColor, rows: document.querySelectorAll('table.rows tbody tr').length,
        requests: performance.getEntriesByType('resource').length};
"""


def lightness(colour):
    return sum(map(float, colour[colour.index("(") + 1:-1].split(",")[:3])) / 3


class ReportInABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.page = Path(cls.folder.name) / "report.html"
        subprocess.run([PROBE, cls.page], check=True)
        cls.window = browser.Browser().__enter__()
        cls.addClassCleanup(cls.window.__exit__)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_plot_is_seen_in_every_window(self):
        for width in (1280, 390):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.window.show(self.page, width, dark=dark)
                    self.check_page(width, dark)

    def check_page(self, width, dark):
        page = self.window.run(PAGE)
        self.assertEqual(page["window"], width)
        self.assertLessEqual(page["wide"], width, "the page scrolls sideways")
        self.assertEqual(page["requests"], 0)
        self.assertEqual(page["rows"], 100)
        self.assertGreater(lightness(page["colour"] if dark else page["background"]), 200)
        self.assertLess(lightness(page["background"] if dark else page["colour"]), 60)
        plots = self.window.run(PLOTS)
        kinds = [plot["id"].split("-")[0] for plot in plots]
        self.assertEqual({kind: kinds.count(kind) for kind in kinds}, KINDS)
        for plot in plots:
            with self.subTest(plot=plot["id"]):
                self.assertGreaterEqual(plot["left"], 0)
                self.assertLessEqual(plot["right"], width)
                self.assertGreater(plot["width"], 300)
                self.assertGreater(plot["height"], 60)
                self.assertGreater(plot["drawn"], 0)
                self.assertEqual(plot["outside"], [])
                self.assertGreater(plot["letters"], 8)
                self.assertGreater(abs(lightness(plot["ink"]) - lightness(plot["paper"])), 100)
        self.assertEqual(self.window.messages(), [])

    def test_a_broken_page_would_be_noticed(self):
        broken = self.page.with_name("broken.html")
        broken.write_text(self.page.read_text().replace(
            "</main>", "<div style='width: 2000px'>wide</div><script>console.error('told')</script></main>"))
        self.window.show(broken, 390)
        self.assertGreater(self.window.run(PAGE)["wide"], 390)
        self.assertIn("told", str(self.window.messages()))

    def test_pictures(self):
        folder = self.page.with_name("pictures")
        tool = Path(browser.__file__).with_name("report_png.py")
        subprocess.run([sys.executable, tool, self.page, folder, "--only", "memory-"], check=True, capture_output=True)
        pictures = list(folder.iterdir())
        self.assertEqual(len(pictures), KINDS["memory"])
        for picture in pictures:
            self.assertTrue(picture.read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    if browser.missing():
        print(f"skipped: Debian's {browser.missing()} is not installed")
        sys.exit(SKIPPED)
    unittest.main()
