"""A recorded or mocked answer is no sample: such tasks are refused or named."""

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

@pytest.fixture
def respx_mock(): ...

@pytest.fixture
def httpx_mock(): ...
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
    for name in ("responses", "vcr"):
        pytester.makepyfile(**{name: DECORATOR})
    pytester.makeini(
        "[pytest]\naddopts = -p no:xdist -p no:cacheprovider\npythonpath = .\n"
        "markers =\n    vcr\n    betamax\n    respx\n"
    )

    def run(above: str, *arguments: str, argument: str = "") -> pytest.RunResult:
        pytester.makepyfile(
            test_it=f"import pytest, responses, vcr as recorder\n\n{above}\n"
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


@pytest.mark.parametrize("place", ["fixture", "import", "test", "nested", "object"])
@pytest.mark.parametrize(
    ("package", "status"), [("vcr", pytest.ExitCode.USAGE_ERROR), ("responses", pytest.ExitCode.OK)]
)
def test_a_recording_that_a_fixture_or_the_test_itself_begins_is_found(
    measure: Callable[..., pytest.RunResult], package: str, status: pytest.ExitCode, place: str
) -> None:
    used = f"with {package}.activate: yield"
    above, argument = {
        "fixture": (f"import {package}\n@pytest.fixture\ndef web():\n    {used}\n", "web"),
        "import": (f"@pytest.fixture\ndef web():\n    import {package}\n    {used}\n", "web"),
        "test": (f"def test_it():\n    import {package}; {package}.activate\n", ""),
        "nested": (f"import {package}\ndef test_it():\n    lambda: {package}.activate\n", ""),
        "object": (f"from {package} import activate\ndef test_it():\n    activate\n", ""),
    }[place]
    if argument:
        above = above.replace(".activate:", ".activate(str) and memoryview(b''):")
    else:
        above = above.replace("def test_it", "@pytest.mark.skill_task\ndef test_that")
    done = measure(above, argument=argument)
    assert done.ret == status
    said = "is answered from a recording" if package == "vcr" else "responses may answer"
    assert said in done.stdout.str() + done.stderr.str()


@pytest.mark.parametrize(
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
    assert "answer the HTTP requests" not in done.stdout.str()


@pytest.mark.parametrize(
    ("above", "argument", "name"),
    [
        ("@pytest.mark.respx", "", "respx"),
        ("", "respx_mock", "respx_mock"),
        ("", "httpx_mock", "httpx_mock"),
        ("@responses.activate", "", "responses"),
    ],
)
def test_a_mock_is_named_in_run_and_plan(
    measure: Callable[..., pytest.RunResult], above: str, argument: str, name: str
) -> None:
    for arguments in ((), ("--collect-only",)):
        done = measure(above, *arguments, argument=argument)
        assert done.ret == 0
        said = " ".join(done.stdout.str().split())
        assert f"{name} may answer the HTTP requests of 1 task, such as test_it.py::test_it" in said


def test_an_ordinary_run_says_nothing(pytester: pytest.Pytester) -> None:
    (pytester.path / "SKILL.md").write_text(SKILL)
    pytester.makeini("[pytest]\nmarkers = vcr\n")
    marks = "@pytest.mark.skill_task\n@pytest.mark.vcr\n"
    pytester.makepyfile(f"import pytest\n\n{marks}def test_it(): pass\n")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(passed=1)
    assert "recording" not in done.stdout.str()
