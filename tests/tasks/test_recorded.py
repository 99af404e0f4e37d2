"""A recorded answer is no sample: such tasks are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tables import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

SKILL = "---\nname: s\ndescription: S.\n---\nBe kind.\n"
PLUGIN = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--disable-recording", action="store_true", dest="disable_recording")
    parser.addoption("--record-mode", default=None, dest="record_mode")

@pytest.fixture(autouse=True)
def vcr(request): ...

@pytest.fixture
def vcr_cassette(): ...

@pytest.fixture
def betamax_session(): ...
"""
DECORATOR = """
import functools

def activate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
"""


@pytest.fixture
def measure(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run a mode on one task, with parts that stand for the plugins' own."""
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile(vcr=DECORATOR)
    pytester.makeini(
        "[pytest]\naddopts = -p no:xdist -p no:cacheprovider\npythonpath = .\n"
        "markers =\n    vcr\n    betamax\n"
    )

    def run(above: str, *arguments: str, argument: str = "") -> pytest.RunResult:
        pytester.makepyfile(
            test_it=f"import pytest, vcr as recorder\n\n{above}\n"
            f"@pytest.mark.skill_task\ndef test_it({argument}): pass\n"
        )
        return pytester.runpytest_inprocess("--skillopt", *arguments)

    return run


@each_row(
    ("above", "argument"),
    [
        ("@pytest.mark.vcr", ""),
        ("@pytest.mark.vcr(record_mode='new_episodes')", ""),
        ("pytestmark = pytest.mark.vcr", ""),
        ("@pytest.mark.betamax", ""),
        ("", "vcr"),
        ("", "vcr_cassette"),
        ("", "betamax_session"),
        ("@pytest.mark.usefixtures('vcr_cassette')", ""),
        ("@recorder.activate", ""),
    ],
)
def test_a_recorded_task_is_refused(
    measure: Callable[..., pytest.RunResult], above: str, argument: str
) -> None:
    for arguments in ((), ("--collect-only",)):
        done = measure(above, *arguments, argument=argument)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        said = done.stdout.str() + done.stderr.str()
        assert "test_it.py::test_it is answered from a recording (" in said
        assert "--deselect" in said


@each_row("place", ["fixture", "import", "test", "nested", "object"])
def test_a_recording_that_a_fixture_or_the_test_itself_begins_is_found(
    measure: Callable[..., pytest.RunResult], place: str
) -> None:
    used = "with vcr.activate: yield"
    above, argument = {
        "fixture": (f"import vcr\n@pytest.fixture\ndef web():\n    {used}\n", "web"),
        "import": (f"@pytest.fixture\ndef web():\n    import vcr\n    {used}\n", "web"),
        "test": ("def test_it():\n    import vcr; vcr.activate\n", ""),
        "nested": ("import vcr\ndef test_it():\n    lambda: vcr.activate\n", ""),
        "object": ("from vcr import activate\ndef test_it():\n    activate\n", ""),
    }[place]
    if argument:
        above = above.replace(".activate:", ".activate(str) and memoryview(b''):")
    else:
        above = above.replace("def test_it", "@pytest.mark.skill_task\ndef test_that")
    done = measure(above, argument=argument)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "is answered from a recording" in done.stdout.str() + done.stderr.str()


@each_row(
    ("above", "arguments"),
    [
        ("", ()),
        ("@pytest.mark.vcr", ("--disable-recording",)),
        ("@pytest.mark.vcr", ("--record-mode=all",)),
        ("@pytest.mark.vcr(record_mode='all')", ()),
    ],
)
def test_a_task_whose_requests_are_sent_is_measured(
    measure: Callable[..., pytest.RunResult], above: str, arguments: tuple[str, ...]
) -> None:
    done = measure(above, *arguments)
    assert done.ret == 0, done.stdout.str()


def test_an_ordinary_run_says_nothing(pytester: pytest.Pytester) -> None:
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makeini("[pytest]\nmarkers = vcr\n")
    marks = "@pytest.mark.skill_task\n@pytest.mark.vcr\n"
    pytester.makepyfile(f"import pytest\n\n{marks}def test_it(): pass\n")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(passed=1)
    assert "recording" not in done.stdout.str()
