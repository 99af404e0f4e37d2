"""Errors and failures, by the exception that ended the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import warm_sessions

if TYPE_CHECKING:
    from tests.rollouts.conftest import Drive

SUITE = """
    import errno, json, os, subprocess, sys
    from types import SimpleNamespace
    import pytest
    from pytest_skillopt.model.types import CacheMiss, CapReached, ModelFault

    def test_fault():
        raise ModelFault("HTTP 503", fatal=False)

    def test_fatal():
        raise ModelFault("HTTP 401: wrong key", fatal=True)

    def test_cap():
        raise CapReached("max_calls is reached")

    def test_cache_miss():
        raise CacheMiss("not recorded")

    class AgentError(Exception): ...

    def test_wrapped():
        try:
            raise ModelFault("HTTP 503")
        except ModelFault as fault:
            raise AgentError("it did not work") from fault

    def test_wrapped_by_an_assertion():
        try:
            raise ModelFault("HTTP 503")
        except ModelFault:
            pytest.fail("no answer")

    def test_in_a_group():
        inner = ExceptionGroup("inner", [ModelFault("HTTP 503")])
        raise ExceptionGroup("some", [ValueError("x"), inner])

    @pytest.fixture
    def reply():
        raise ModelFault("HTTP 503")

    def test_in_setup(reply):
        pass

    @pytest.mark.xfail(reason="known")
    def test_expected_to_fail():
        raise ModelFault("HTTP 503")

    def test_timeout():
        raise TimeoutError("no answer in 5 s")

    def test_timeout_of_pytest_timeout():
        pytest.fail("Timeout (>1.5s) from pytest-timeout.")

    def test_connection():
        raise ConnectionRefusedError("port 5432")

    def test_html():
        reply = "<html>Bad gateway</html>"
        return reply.choices[0]

    class Body:
        choices = None
        first = 0

    def test_no_choices():
        return Body().choices[0].message

    def test_no_choices_elsewhere():
        first = 0
        body = Body()
        for choice in (
            body.choices
        ):
            first = choice.index

    def test_no_choices_counted():
        assert len(Body().choices) == 1

    def test_no_choices_unpacked():
        (choice,) = Body().choices

    def test_no_choices_by_a_number():
        assert Body().choices[Body.first].message == "x"

    class Reply:
        tool_calls = content = message = None
        first = 0

        @property
        def choices(self):
            return [self]

    Reply.message = Reply()

    def test_no_call_of_a_tool():
        return Reply().choices[0].message.tool_calls[0]

    def test_no_content():
        return len(Reply().choices[0].message.content)

    def test_own_none():
        found = None
        return found[0]  # not .choices

    class Refused(Exception):
        def __init__(self, **facts):
            super().__init__("slow down")
            self.__dict__.update(facts)

    class Response:
        status_code = 503

        def __bool__(self):
            return False

    def test_rate_limit_of_an_sdk():
        raise Refused(status_code=429)

    def test_overload_behind_requests():
        raise Refused(response=Response())

    def test_rate_limit_of_urllib():
        import urllib.error
        raise urllib.error.HTTPError("http://x", 429, "Too Many Requests", {}, None)

    def test_gateway_behind_requests():
        raise Refused(response=SimpleNamespace(status_code=502))

    def test_overload_of_aiohttp():
        raise Refused(status=503)

    def test_no_name_server():
        import socket
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    def test_connection_that_no_class_of_python_tells():
        import requests
        raise requests.exceptions.ChunkedEncodingError("connection broken")

    def test_half_a_body():
        import http.client
        raise http.client.IncompleteRead(b"{")

    def test_server_of_a_provider():
        kind = type("InternalServerError", (Exception,), {"__module__": "anthropic"})
        raise type("Overloaded", (kind,), {})("overloaded")

    def test_full_disk(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x")

    def test_no_more_files():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def test_no_route():
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
    def test_killed(name):
        # A process inherits which signals are ignored, as SIGHUP is under nohup.
        default = f"signal.signal(signal.{name}, signal.SIG_DFL)"
        reset = "pass" if name == "SIGKILL" else default
        program = f"import os, signal; {reset}; os.kill(os.getpid(), signal.{name})"
        subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)

    def test_crashed():
        subprocess.run([sys.executable, "-I", "-S", "-c", "import os; os.abort()"], check=True)

    def test_no_such_file():
        open("no-such-file")

    def test_own_program_fails():
        raise Refused(response=SimpleNamespace(status_code=500))

    def test_refusal_for_what_was_asked():
        raise Refused(status_code=422)

    def test_a_code_of_another_kind():
        raise Refused(code="429")

    def test_own_hook():
        raise KeyError("licence server")

    def test_unreadable_answer():
        json.loads("not json")

    def test_none_answer():
        None["total"]

    def test_wrong_type():
        "text".total

    def test_words_about_a_timeout():
        pytest.fail("Timeout (>1.5s) is what the answer should have said")

    def test_assertion_after_timeout():
        try:
            raise TimeoutError("slow")
        except TimeoutError:
            assert False, "the answer is late"
"""
HOOK = """
    from pytest_skillopt.rollouts.rollout import InfraError

    def pytest_skillopt_classify_error(config, exception):
        if isinstance(exception, KeyError) and "licence" in str(exception):
            return InfraError("setup", "no licence")
"""

ERRORS = {
    "test_fault": ("provider", "HTTP 503"),
    "test_fatal": ("provider", "HTTP 401: wrong key"),
    "test_cap": ("cap", "max_calls is reached"),
    "test_cache_miss": ("cache", "not recorded"),
    "test_wrapped": ("provider", "HTTP 503"),
    "test_wrapped_by_an_assertion": ("provider", "HTTP 503"),
    "test_in_a_group": ("provider", "HTTP 503"),
    "test_in_setup": ("provider", "HTTP 503"),
    "test_expected_to_fail": ("provider", "HTTP 503"),
    "test_timeout": ("provider", "TimeoutError: no answer in 5 s"),
    "test_timeout_of_pytest_timeout": ("timeout", "Timeout (>1.5s) from pytest-timeout."),
    "test_connection": ("provider", "ConnectionRefusedError: port 5432"),
    "test_html": ("provider", "the provider sent no reply"),
    "test_no_choices": ("provider", "the provider sent no reply"),
    "test_no_choices_elsewhere": ("provider", "the provider sent no reply"),
    "test_no_choices_counted": ("provider", "the provider sent no reply"),
    "test_no_choices_unpacked": ("provider", "the provider sent no reply"),
    "test_no_choices_by_a_number": ("provider", "the provider sent no reply"),
    "test_rate_limit_of_an_sdk": ("provider", "Refused: slow down"),
    "test_overload_behind_requests": ("provider", "Refused: slow down"),
    "test_rate_limit_of_urllib": ("provider", "Too Many Requests"),
    "test_gateway_behind_requests": ("provider", "Refused: slow down"),
    "test_overload_of_aiohttp": ("provider", "Refused: slow down"),
    "test_no_name_server": ("provider", "Temporary failure in name resolution"),
    "test_connection_that_no_class_of_python_tells": ("provider", "connection broken"),
    "test_half_a_body": ("provider", "IncompleteRead"),
    "test_server_of_a_provider": ("provider", "Overloaded: overloaded"),
    "test_full_disk": ("setup", "No space left on device"),
    "test_no_more_files": ("setup", "Too many open files"),
    "test_no_route": ("setup", "No route to host"),
    "test_killed[SIGKILL]": ("setup", "SIGKILL"),
    "test_killed[SIGTERM]": ("setup", "SIGTERM"),
    "test_killed[SIGINT]": ("setup", "SIGINT"),
    "test_killed[SIGHUP]": ("setup", "SIGHUP"),
    "test_own_hook": ("setup", "no licence"),
}
FAILURES = (
    "test_crashed",
    "test_no_such_file",
    "test_own_program_fails",
    "test_refusal_for_what_was_asked",
    "test_a_code_of_another_kind",
    "test_unreadable_answer",
    "test_none_answer",
    "test_no_call_of_a_tool",
    "test_no_content",
    "test_own_none",
    "test_wrong_type",
    "test_words_about_a_timeout",
    "test_assertion_after_timeout",
)


def test_errors_are_told_from_failures(drive: Drive) -> None:
    driven = drive(SUITE, "-p", "no:xdist", conftest=HOOK)
    for test, (kind, message) in ERRORS.items():
        error = driven.one(test).error
        assert error is not None, test
        assert (error.kind, test) == (kind, test)
        assert message in error.message
        assert error.fatal == (test == "test_fatal")
    for test in FAILURES:
        assert driven.one(test).outcome == "failed", test


BREAKING = """
    import pytest

    class Breaking:
        name, fingerprint, simulated = "test:breaking", "0", False

        def complete(self, messages, **options):
            prompt = messages[-1]["content"]
            if "no key" in prompt:
                raise KeyError("PYTEST_CURRENT_TEST")
            raise {"index": IndexError, "type": TypeError, "value": ValueError}[prompt]("it broke")

    @pytest.hookimpl(tryfirst=True)
    def pytest_skillopt_client(config, role):
        if role == "target":
            return Breaking()
"""


@pytest.mark.parametrize("args", [("-p", "no:xdist"), ("-n1", "--drive-lanes=2")], ids=" ".join)
def test_what_breaks_inside_our_fixtures_is_no_failure(drive: Drive, args: tuple[str, ...]) -> None:
    driven = drive(
        """
        import asyncio, pytest

        @pytest.mark.parametrize("prompt", ["no key", "index", "type", "value"])
        def test_in_a_call(skill_agent, prompt):
            skill_agent(prompt)

        async def _ask(agent):
            await agent.aio("no key")

        def test_in_an_asynchronous_call(skill_agent):
            asyncio.run(_ask(skill_agent))

        def test_swallowed(skill_agent):
            try:
                skill_agent("no key")
            except Exception:
                pytest.fail("no answer")

        def test_judge_that_is_not_configured(request):
            request.getfixturevalue("skill_judge")

        @pytest.fixture
        def ground_truth():
            assert False, "the test's own"

        def test_own_assertion_in_setup(ground_truth): pass

        def test_own_exception(skill_agent):
            {}["PYTEST_CURRENT_TEST"]

        def test_wrong_score(rollout):
            rollout.score("high")

        def test_two_openings(skill_agent):
            skill_agent("a", tools=[3])
        """,
        *args,
        conftest=BREAKING,
    )
    failed = {r.request.task.partition("::")[2] for r in driven.rollouts if r.outcome == "failed"}
    assert failed == {
        "test_own_assertion_in_setup",
        "test_own_exception",
        "test_wrong_score",
        "test_two_openings",
    }
    errors = {r.error.kind: r.error.message for r in driven.rollouts if r.error is not None}
    assert set(errors) == {"internal"}
    assert len(driven.rollouts) - len(failed) == 7
    (lost,) = (r.error for r in driven.of("test_in_a_call[no key]"))
    assert lost is not None
    assert lost.message == "KeyError: 'PYTEST_CURRENT_TEST'"


ENDING = """
    import os, sys, threading
    import pytest

    @pytest.mark.skill_task(skill="SKILL.md")
    @pytest.mark.parametrize("end", ["exit", "thread", "exec", "child"])
    def test_it(skill, end):
        if end == "exit":
            os._exit(0)
        if end == "thread":
            thread = threading.Thread(target=os._exit, args=(0,))
            thread.start()
            thread.join()
        if end == "exec":
            os.execv(sys.executable, [sys.executable, "-c", ""])
        if end == "child" and not os.fork():
            os._exit(0)
"""


def test_a_test_cannot_end_the_session_with_status_0(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("SKILL.md").write_text("---\nname: a\ndescription: b\n---\n# A\n")
    pytester.makepyfile(ENDING)
    done = warm_sessions.run("-p", "no:xdist", "--skillopt", cwd=pytester.path)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    for call in ("os._exit", "os.exec*"):
        done.stdout.fnmatch_lines(f"*the test ends pytest's own process by {call}: start a child*")
