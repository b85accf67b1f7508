"""A headless Chromium, driven over WebDriver with what Python has. Debian: chromium and chromium-driver."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

START_SECONDS = 30
CALL_SECONDS = 60
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, by the WebDriver standard


def missing():
    """What has to be installed before Browser can be used; empty: nothing."""
    return " and ".join(name for name, programs in (("chromium", ("chromium", "google-chrome")),
                                                    ("chromium-driver", ("chromedriver",)))
                        if not any(map(shutil.which, programs)))


class Browser:
    """One window. Use as a context: at its end the browser is gone."""

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen([shutil.which("chromedriver"), f"--port={port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.address = f"http://127.0.0.1:{port}"
        try:
            self._wait_for_driver()
            self._open_session()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if "/session/" in self.address:
                self._call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.profile.cleanup()

    def _wait_for_driver(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._call("GET", "/status")
            except OSError:
                if self.driver.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("chromedriver did not start") from None
                time.sleep(0.05)

    def _open_session(self):
        # Root has no sandbox, and small containers no room in /dev/shm.
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     f"--user-data-dir={self.profile.name}"]
        options = {"args": arguments}
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        if binary:
            options["binary"] = binary
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address += f"/session/{made['sessionId']}"

    def _call(self, method, path, body=None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def _devtools(self, command, **parameters):
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, path, width, height=900, dark=False, scale=1):
        """Opens a file in a window of so many CSS pixels."""
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                       mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._call("POST", "/url", {"url": Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """What a function body in JavaScript returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def messages(self):
        """What the console was told since the last call."""
        return self._call("POST", "/se/log", {"type": "browser"})

    def picture(self, selector=None):
        """A PNG of the first such element, or of the window."""
        if selector is None:
            return base64.b64decode(self._call("GET", "/screenshot"))
        element = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return base64.b64decode(self._call("GET", f"/element/{element[ELEMENT]}/screenshot"))
