"""The example project as it is shipped, for tests that run it."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKILL = "skills/invoice-extraction/SKILL.md"
START = ROOT / "tests" / "data" / "example_skill_start.md"


def copy_example(target: Path, checkout: Path = ROOT) -> Path:
    """Write the example of the last commit to ``target``, whatever a user trained or changed.

    Outside of a git checkout there is only what lies there: its skill is replaced by the kept copy.
    """
    try:
        command = ["git", "archive", "--format=tar", "HEAD:example_project"]
        done = subprocess.run(command, cwd=checkout, capture_output=True, check=False)
    except FileNotFoundError:
        done = None
    if done is not None and not done.returncode:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(target, filter="data")
        return target
    left_out = shutil.ignore_patterns(".skillopt", ".pytest_cache", "__pycache__", ".venv")
    shutil.copytree(checkout / "example_project", target, ignore=left_out, dirs_exist_ok=True)
    shutil.copyfile(START, target / SKILL)
    return target


def answer_at_once(example: Path) -> None:
    """Take from the models of a copy their latency, on which no result depends."""
    server = example / "simulation" / "server.py"
    text = server.read_text(encoding="utf-8")
    quick = text.replace("latency=0.04", "latency=0.0")
    assert quick != text
    server.write_text(quick, encoding="utf-8")
