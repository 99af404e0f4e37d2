"""Outcomes of tests of every kind, whichever executor runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rollouts.conftest import Drive, Driven

MODES = {
    "serial": ("-p", "no:xdist"),
    "workers": ("-n", "2", "-v", "-x", "--junitxml=junit.xml"),
    "lanes": ("-n", "1", "--drive-lanes=4"),
}

SUITE = """
    import asyncio, itertools, os, unittest, warnings
    from unittest import mock
    import pytest

    @pytest.fixture(scope="session")
    def by_skill(skill):
        return object()

    @pytest.fixture(scope="session")
    def by_process():
        return next(numbers)

    numbers = itertools.count()
    seen = {}

    def test_fixture_scopes(skill, by_skill, by_process, rollout):
        # A fixture that depends on the skill lives as long as the version, others as the session.
        known = seen.setdefault((skill.version, by_process), by_skill)
        rollout.record("user", [skill.text.split()[-1], str(skill.path / "SKILL.md")])
        assert (skill.path / "SKILL.md").read_text() == skill.text
        assert known is by_skill or skill.text.endswith("version 0\\n")

    def test_assertion():
        x = {"a": 1}
        assert x == {"a": 2}, "the total is wrong"

    def test_fail():
        pytest.fail("no such luck")

    def test_raises():
        with pytest.raises(ValueError, match="x"):
            raise ValueError("x")

    def test_other_exception():
        {}["total"]

    def test_skip():
        pytest.skip("not here")

    @pytest.mark.skipif(True, reason="never")
    def test_skip_mark():
        assert False

    @pytest.mark.xfail(reason="known")
    def test_xfail():
        assert False

    @pytest.mark.xfail(reason="known", run=False)
    def test_xfail_not_run():
        assert False

    def test_xfail_called():
        pytest.xfail("not here")

    @pytest.mark.xfail(reason="known")
    def test_xpass():
        assert True

    @pytest.mark.xfail(reason="known", strict=True)
    def test_xpass_strict():
        assert True

    @pytest.fixture
    def no_database():
        raise OSError("the database is down")

    def test_broken_fixture(no_database):
        assert True

    @pytest.mark.xfail(reason="known")
    def test_xfail_in_setup(no_database):
        assert True

    @pytest.fixture
    def wrong_answer():
        assert 1 == 2, "asked in a fixture"

    def test_asserting_fixture(wrong_answer):
        assert True

    @pytest.fixture
    def broken_teardown():
        yield
        raise OSError("cannot clean up")

    def test_broken_teardown(broken_teardown):
        assert True

    def test_failed_and_broken_teardown(broken_teardown):
        assert False, "measured first"

    def test_missing_fixture(nonexistent):
        assert True

    def test_subtests(subtests):
        for i in range(3):
            with subtests.test("part", i=i):
                assert i != 1

    class TestPlain:
        n = 0

        @pytest.fixture(scope="class")
        def shared(self):
            return []

        def test_fresh_instance(self, shared):
            self.n += 1
            assert self.n == 1

        def test_class_scope(self, shared):
            shared.append(1)

    class TestUnit(unittest.TestCase):
        def setUp(self):
            self.value = 1

        def test_pass(self):
            self.assertEqual(self.value, 1)

        def test_fail(self):
            self.assertEqual(self.value, 2)

        def test_subtest(self):
            for i in range(3):
                with self.subTest(i=i):
                    self.assertNotEqual(i, 1)

        @unittest.skip("not now")
        def test_skipped(self):
            pass

    @pytest.mark.parametrize("case", ["one", "two"])
    def test_parametrised(case):
        assert case == "one"

    def test_tmp_path(tmp_path):
        assert not list(tmp_path.iterdir())
        (tmp_path / "file").touch()

    def test_monkeypatch(monkeypatch):
        monkeypatch.setenv("SKILLOPT_X", "1")
        assert os.environ["SKILLOPT_X"] == "1"

    def test_environment_is_clean():
        assert "SKILLOPT_X" not in os.environ

    def test_capsys(capsys):
        print("shown")
        assert capsys.readouterr().out == "shown\\n"

    def test_capsys_late(request):
        capsys = request.getfixturevalue("capsys")
        print("shown")
        assert capsys.readouterr().out == "shown\\n"

    def test_caplog(caplog):
        import logging
        logging.getLogger().warning("careful")
        assert caplog.messages == ["careful"]

    @mock.patch("os.getcwd", return_value="nowhere")
    def test_patched(getcwd):
        assert os.getcwd() == "nowhere"

    @pytest.mark.filterwarnings("error")
    def test_warning_filter():
        with pytest.raises(UserWarning):
            warnings.warn("x")

    def test_printed():
        print("to be seen")
        assert False

    class Wordless(Exception):
        def __str__(self):
            raise ValueError
        __repr__ = __str__

    def test_without_words():
        raise Wordless

    def test_fixture_without_words(wordless):
        pass

    @pytest.fixture
    def wordless():
        raise Wordless

    @pytest.mark.skill_task
    async def test_async(rollout):
        await asyncio.sleep(0.01)
        rollout.score(0.25)
        assert False, "after waiting"

    def test_marker_added(request):
        assert not [m for m in request.node.iter_markers("added")]
        request.node.add_marker("added")

    def test_unrecordable(rollout):
        rollout.record("user", object())

    def test_unrecordable_and_swallowed(rollout):
        try:
            rollout.record("user", {1, 2})
        except TypeError:
            pass

    def test_score_out_of_range(rollout):
        rollout.score(1.5)

    def test_feedback(rollout):
        rollout.feedback("look at the currency")
        assert False

    def test_sys_exit():
        raise SystemExit(3)

    def test_thread_left():
        import threading, time
        threading.Thread(target=time.sleep, args=(0.3,)).start()

    def test_flood(rollout):
        for _ in range(10):
            print("x" * 1_000_000)
        rollout.record("assistant", "y" * 1_000_000)
        assert False, "z" * 100_000

    def test_exit():
        pytest.exit("no licence")

    def test_should_stop(request):
        request.session.shouldstop = "enough"

    def test_group():
        raise ExceptionGroup("both", [AssertionError("first"), ValueError("second")])
"""

EXPECTED = {
    "test_fixture_scopes": ("passed", ""),
    "test_assertion": ("failed", "the total is wrong"),
    "test_fail": ("failed", "no such luck"),
    "test_raises": ("passed", ""),
    "test_other_exception": ("failed", "KeyError: 'total'"),
    "test_skip": ("skipped", "not here"),
    "test_skip_mark": ("skipped", "never"),
    "test_xfail": ("failed", "assert False"),
    "test_xfail_in_setup": ("skipped", "expected to fail: known"),
    "test_xfail_not_run": ("skipped", "expected to fail: [NOTRUN] known"),
    "test_xfail_called": ("skipped", "expected to fail: not here"),
    "test_xpass": ("passed", ""),
    "test_xpass_strict": ("passed", ""),
    "test_broken_fixture": ("error", "set-up failed: OSError: the database is down"),
    "test_asserting_fixture": ("failed", "asked in a fixture"),
    "test_broken_teardown": ("error", "teardown failed: OSError: cannot clean up"),
    "test_failed_and_broken_teardown": ("failed", "measured first"),
    "test_missing_fixture": ("error", "nonexistent"),
    "TestPlain::test_fresh_instance": ("passed", ""),
    "TestPlain::test_class_scope": ("passed", ""),
    "TestUnit::test_pass": ("passed", ""),
    "TestUnit::test_fail": ("failed", "1 != 2"),
    "TestUnit::test_skipped": ("skipped", "not now"),
    "test_parametrised[one]": ("passed", ""),
    "test_parametrised[two]": ("failed", "two"),
    "test_tmp_path": ("passed", ""),
    "test_monkeypatch": ("passed", ""),
    "test_environment_is_clean": ("passed", ""),
    "test_capsys": ("passed", ""),
    "test_capsys_late": ("passed", ""),
    "test_caplog": ("passed", ""),
    "test_patched": ("passed", ""),
    "test_warning_filter": ("passed", ""),
    "test_printed": ("failed", "assert False"),
    "test_without_words": ("failed", "<exception str() failed>"),
    "test_fixture_without_words": ("error", "set-up failed: Wordless: <exception str() failed>"),
    "test_async": ("failed", "after waiting"),
    "test_marker_added": ("passed", ""),
    "test_unrecordable": ("failed", "Object of type object is not JSON serializable"),
    "test_unrecordable_and_swallowed": (
        "failed",
        "rollout.record: Object of type set is not",
    ),
    "test_score_out_of_range": ("failed", "1.5 is not a finite number from 0 to 1"),
    "test_feedback": ("failed", "assert False"),
    "test_sys_exit": ("failed", "SystemExit: 3"),
    "test_thread_left": ("passed", ""),
    "test_flood": ("failed", "zzz"),
    "test_exit": ("error", "the test stopped the run: no licence"),
    "test_should_stop": ("error", "the test stopped the run: enough"),
    "test_group": ("failed", "AssertionError: first"),
}

SUBTESTS = {
    "test_subtests": ("failed", "[part] (i=1): assert 1 != 1"),
    "TestUnit::test_subtest": ("failed", "(i=1): AssertionError: 1 == 1"),
}
if pytest.version_tuple < (9,):  # knows no subtests, and stops a TestCase at the first failed one
    SUBTESTS = {
        "test_subtests": ("error", "subtests: no such fixture"),
        "TestUnit::test_subtest": ("failed", "AssertionError: 1 == 1"),
    }


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_test_ends_as_in_a_plain_run(drive: Drive, mode: str) -> None:
    driven = drive(SUITE, *MODES[mode], job="rollout_driver:two_versions")
    for test, (outcome, message) in (EXPECTED | SUBTESTS).items():
        rollouts = driven.of(test)
        assert [r.outcome for r in rollouts] == [outcome] * 9, (test, rollouts)
        for rollout in rollouts:
            shown = rollout.error.message if rollout.error else rollout.message
            assert message in shown, (test, shown)
            assert (rollout.error is not None) == (outcome == "error")
            assert rollout.measured == (rollout.score is not None)
    _check_what_was_recorded(driven)
    if "-x" in MODES[mode]:  # Rollouts are no tests of the session.
        assert "FAILED" not in driven.output
        assert 'tests="0"' in (driven.path / "junit.xml").read_text()


def test_a_hook_of_the_project_makes_a_pass_a_failure(drive: Drive) -> None:
    """Plugins for soft assertions do so, without an exception."""
    conftest = """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if report.when == "call" and item.name == "test_soft":
            report.outcome, report.longrepr = "failed", "the total is wrong"
        return report
    """
    tests = """
    import pytest

    pytestmark = pytest.mark.skill_task

    def test_soft(): ...
    def test_other(): ...
    """
    driven = drive(tests, "-p", "no:xdist", conftest=conftest)
    assert driven.one("test_other").outcome == "passed"
    rollout = driven.one("test_soft")
    assert (rollout.outcome, rollout.message) == ("failed", "the total is wrong")


def _check_what_was_recorded(driven: Driven) -> None:
    versions = [r.transcript[0].content.split('"')[1] for r in driven.of("test_fixture_scopes")]
    assert versions == ["0", "0", "0", "1", "1", "1", "0", "0", "0"]
    assert [r.score for r in driven.of("test_async")] == [0.25] * 9
    assert {r.feedback for r in driven.of("test_feedback")} == {"look at the currency"}
    assert {r.location for r in driven.of("test_assertion")} == {"test_suite.py:25"}
    assert {r.line for r in driven.of("test_assertion")} == {25}
    assert all(r.error and r.error.fatal for r in driven.of("test_exit"))
    for rollout in driven.of("test_flood"):
        assert 1_000 < len(rollout.output) < 20_000
        assert len(rollout.message) < 5_000
        assert len(rollout.transcript[0].content) < 300_000
    for rollout in driven.rollouts:
        printed = "test_printed" in rollout.request.task
        assert rollout.output.count("to be seen") == printed


@pytest.mark.parametrize("name", ["pytest-retry", "another"])
def test_a_plugin_that_retries_does_not_make_a_failure_a_pass(drive: Drive, name: str) -> None:
    """It does so within the report of the first call; pytest-retry does not even set up again."""
    conftest = f"""
    import pytest

    class Retry:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            report = yield
            if report.when == "call" and report.failed:
                item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
                item._initrequest()
                item.ihook.pytest_runtest_setup(item=item)
                again = pytest.CallInfo.from_call(
                    lambda: item.ihook.pytest_runtest_call(item=item), when="call"
                )
                report.outcome = "failed" if again.excinfo else "passed"
            return report

    def pytest_configure(config):
        config.pluginmanager.register(Retry(), {name!r})
    """
    tests = """
    import pytest

    calls, set_up = [], []

    @pytest.fixture
    def place():
        set_up.append("place")

    def test_flaky(place):
        calls.append("call")
        assert len(calls) > 1

    def test_places():
        assert len(set_up) == 1
    """
    driven = drive(tests, "-p", "no:xdist", conftest=conftest)
    rollout = driven.one("test_flaky")
    assert (rollout.outcome, rollout.message) == (
        "failed",
        "assert 1 > 1\n +  where 1 = len(['call'])",
    )
    assert driven.one("test_places").passed == (name == "pytest-retry")


def test_a_plugin_that_seeds_chance_by_the_test_does_not_make_rollouts_alike(drive: Drive) -> None:
    """As pytest-randomly does."""
    conftest = """
    import random
    from zlib import crc32

    def pytest_addoption(parser):
        parser.addoption("--randomly-seed", type=int, default=7)

    def pytest_runtest_call(item):
        random.seed(item.config.getoption("randomly_seed") + crc32(item.nodeid.encode()))
    """
    tests = "import random\n\ndef test_t(): print(random.random())\n"
    serial = ("-p", "no:xdist")
    driven = drive(tests, *serial, conftest=conftest, job="rollout_driver:two_versions")
    assert len({r.output for r in driven.rollouts}) == 9


def test_a_plugin_that_knows_one_rollout_of_a_test_at_once_is_off_in_lanes(drive: Drive) -> None:
    """The listener of Allure finds a test that runs by its node ID."""
    conftest = """
    import pytest

    class Listener:
        running = {}

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item):
            self.running[item.nodeid] = item
            result = yield
            del self.running[item.nodeid]
            return result

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item):
            self.running[item.nodeid]
            return (yield)

    def pytest_configure(config):
        config.pluginmanager.register(Listener(), "allure_listener")
    """
    tests = "import time\n\ndef test_slow(): time.sleep(0.02)\n"
    driven = drive(tests, *MODES["lanes"], conftest=conftest, job="rollout_driver:two_versions")
    assert {r.outcome for r in driven.rollouts} == {"passed"}


def test_tests_that_share_an_event_loop_do_not_overlap_in_lanes(drive: Drive) -> None:
    """The plugin of anyio, which comes with openai, has one loop for all tests of a process."""
    tests = """
    import anyio, pytest

    @pytest.fixture(scope="module")
    def anyio_backend():
        return "asyncio"

    @pytest.fixture(scope="module")
    async def service(anyio_backend):
        await anyio.sleep(0)
        yield "service"

    @pytest.mark.anyio
    async def test_slow(service):
        await anyio.sleep(0.02)
        assert service == "service"
    """
    lanes = ("-p", "anyio", *MODES["lanes"])
    driven = drive(tests, *lanes, job="rollout_driver:two_versions")
    assert {r.outcome for r in driven.rollouts} == {"passed"}
