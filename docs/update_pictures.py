"""Makes the pictures of docs/watching.md from a training of the example; needs Chromium.

python docs/update_pictures.py
"""

from __future__ import annotations

import base64
import importlib.util
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.addons.watch.server import Watch

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
DRIVER = ROOT / "tests" / "report" / "browser" / "conftest.py"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    project = ROOT / "example_project"
    command = [sys.executable, "-m", "pytest", "--skillopt-train", "-n", "2", "-q"]
    fresh = ["--skillopt-cache=off", "-o", "skillopt_write=no"]
    subprocess.run([*command, *fresh], cwd=project, check=True)
    run = max((project / ".skillopt" / "runs").iterdir())
    server = Watch(run)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = load(DRIVER).Browser("chromium", Path(profile))
        for name, width, dark in (("watch-light", 1280, False), ("watch-dark", 390, True)):
            browser.open_url(server.url, width=width, dark=dark)
            drawn = "document.querySelector('.cells i') && !document.getAnimations().length"
            while not browser.evaluate(f"Boolean({drawn})"):
                time.sleep(0.1)
            clip = {"x": 0, "y": 0, "width": width, "height": 1400, "scale": 1}
            taken = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            (PICTURES / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
