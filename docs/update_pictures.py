"""Make the pictures of the README and docs/reports.md from a training of the example.

python docs/update_pictures.py          needs Chromium
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pytest_skillopt.plugins.watch.server import Watch

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests" / "_support"))

from browser import Browser  # noqa: E402


def take(browser: Browser, name: str, width: int, height: int) -> None:
    """Write the top of the page that is open into a picture of this size."""
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    taken = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    (PICTURES / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    project = ROOT / "example_project"
    command = [sys.executable, "-m", "pytest", "--skillopt-train", "-n", "2", "-q"]
    fresh = ["--skillopt-cache=off", "-o", "skillopt_write=no"]
    subprocess.run([*command, *fresh], cwd=project, check=True)
    run = max((project / ".skillopt" / "runs").iterdir())
    server = Watch(run)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser("chromium", Path(profile))
        browser.open_url(server.url, width=1280)
        drawn = "document.querySelector('.cells i') && !document.getAnimations().length"
        while not browser.evaluate(f"Boolean({drawn})"):
            time.sleep(0.1)
        take(browser, "watch-light", 1280, 1400)
        browser.open(run / "report.html", width=1000)
        take(browser, "report", 1000, 912)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
