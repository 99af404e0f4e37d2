"""The checks of the project, one session each; ``.ci/run`` and the workflows call the same ones.

``nox -l`` lists them; ``nox -s tests-3.12 -- -k gate`` hands arguments on to pytest.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "workflows"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
OLDEST = (
    "pytest==8.4.0",
    "pytest-xdist==3.6.1",
    "openai==2.0.0",
    "filelock==3.16.0",
    "pydantic==2.10.6",
)
"""Oldest supported versions of the packages whose inside is relied on."""
INSIDE = (
    "tests/rollouts/test_outcome.py",
    "tests/test_internals.py",
    "tests/rollouts/test_worker_faults.py",
    "tests/model/test_client.py",
    "tests/model/test_cache.py",
    "tests/model/test_agent.py",
    "tests/model/test_tools.py",
    "tests/model/test_transport.py",
)
"""Tests of what depends on the inside of pytest, pytest-xdist and openai."""
USE = (
    "tests/test_plain_run.py",
    "tests/test_training.py",
    "-k",
    "leaves_the_rest or ordinary or skills",
)
"""Tests of what a user does first."""
TYPED = ("hatchling", "hypothesis", "markdown-it-py", "mdit-py-plugins", "skillrl", "types-PyYAML")
"""What tests and benchmarks import; the agents of ``dev``, of 700 MB, have no types to check."""
UPSTREAM = [
    f"{name} @ https://github.com/pytest-dev/{name}/archive/main.tar.gz"
    for name in ("pytest", "pluggy", "pytest-xdist")
]


@nox.session(python=[*PYTHONS, "3.14t"])
def tests(session: nox.Session) -> None:
    """Run the tests of the plugin."""
    session.install("-e", ".[dev]")
    session.run("pytest", "-n", "4", "-p", "no:cacheprovider", *session.posargs)


@nox.session(python=PYTHONS[1:])
def use(session: nox.Session) -> None:
    """Run the tests of what a user does first, on each Python that is there."""
    session.install("-e", ".", "hypothesis")
    session.run("pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *(session.posargs or USE))


@nox.session
def oldest(session: nox.Session) -> None:
    """Run the tests of the inside with the oldest supported versions."""
    session.install("-e", ".", "hypothesis", *OLDEST)
    session.run("pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *(session.posargs or INSIDE))


@nox.session
def upstream(session: nox.Session) -> None:
    """Run the tests of the inside with the main branches of pytest, pluggy and pytest-xdist."""
    session.install("-e", ".", "hypothesis")
    session.install("--no-deps", *UPSTREAM)
    session.run("pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *(session.posargs or INSIDE))


@nox.session
def fresh(session: nox.Session) -> None:
    """Install as a user does, with the newest of everything, and train the example."""
    session.install(".")
    session.chdir("example_project")
    session.run("pytest", "--skillopt-train", "-n", "2")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, and what may import what."""
    session.install("ruff>=0.9", "import-linter>=2")
    session.run("ruff", "check", ".")
    session.run("ruff", "check", "--preview", "--select=PLW1514", ".")  # encodings
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types."""
    session.install("-e", ".", "mypy>=1.15", *TYPED)
    session.run("mypy")


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the workflow files: schemas, syntax (actionlint), security (zizmor)."""
    session.install("check-jsonschema>=0.33", "zizmor>=1.14")
    session.run("sh", ".ci/lint-workflows", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into ``site/``; a warning is an error."""
    session.install(".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def site(session: nox.Session) -> None:
    """Commit the site to the branch gh-pages: ``nox -s site -- VERSION [ALIAS]``."""
    session.install(".[docs]")
    session.run("mike", "deploy", "--update-aliases", *session.posargs)
    if "latest" in session.posargs:
        session.run("mike", "set-default", "latest")


@nox.session
def package(session: nox.Session) -> None:
    """Build sdist and wheel into ``dist/`` once, check both, and train with what is in them.

    The example of the unpacked sdist is trained by the wheel in an environment that has nothing
    else: what is missing in either is missed here. On a tag, the version must be the tag's.
    """
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    if tag := os.environ.get("GITHUB_REF", "").partition("refs/tags/v")[2]:
        assert list(Path("dist").glob(f"pytest_skillopt-{tag}.tar.gz")), f"the tag says {tag}"
    wheel, sdist = (str(next(Path("dist").glob(f"*{end}"))) for end in (".whl", ".tar.gz"))
    session.run("twine", "check", "--strict", wheel, sdist)
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder / "sdist", ignore_errors=True)
    shutil.unpack_archive(sdist, folder / "sdist", filter="data")
    (root,) = (folder / "sdist").iterdir()
    session.run("python", "-m", "venv", "--clear", str(folder / "venv"))
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    session.run(str(programs / "pip"), "install", wheel, external=True)
    session.chdir(root / "example_project")
    session.run(str(programs / "pytest"), "--skillopt-train", "-n", "2", external=True)
