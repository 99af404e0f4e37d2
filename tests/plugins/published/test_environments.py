"""Environments of skillrl and of SkillOpt as tasks, against a server on loopback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import asked_in
from greetings import proposal
from made_results import build, with_skill
from run_files import latest_entries
from tables import each_row

from pytest_skillopt.plugins.published import (
    pytest_skillopt_result,
)
from pytest_skillopt.plugins.published.environments import score_row
from pytest_skillopt.run.result import Arm

if TYPE_CHECKING:
    from chat_server import Answer, Body, ChatServer

qa: Any = pytest.importorskip("skillrl.envs.qa")
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal"]
RULE = "Answer in capitals."
SKILL = "---\nname: names\ndescription: Repeats names.\n---\nRepeat the name.\n"

QA = f"""
from skillrl.envs.qa import SimpleQAEnv
from pytest_skillopt.plugins.published import tasks_of

NAMES = {NAMES!r}

def items(names):
    return [{{"id": n, "question": f"Name {{n}}", "answers": [f"<{{n}}>"]}} for n in names]

test_qa = tasks_of(SimpleQAEnv(
    train_items=items(NAMES[:4]), val_items=items(NAMES[4:]), test_items=[]))
"""

ADAPTER = f"""
from concurrent.futures import ThreadPoolExecutor
from pytest_skillopt.plugins.published import tasks_of

NAMES = {NAMES!r}

def chat_target(system, user, max_completion_tokens=16384, retries=5, stage="rollout"):
    raise AssertionError("SkillOpt's own backend was called")

class Loader:
    '''As SkillOpt's documentation states it: a SplitDataLoader after setup.'''
    def setup(self, cfg):
        items = [{{"id": name, "question": name, "task_type": f"{{len(name)}} letters"}}
                 for name in NAMES]
        at = cfg["train"]
        self.train_items, self.val_items, self.test_items = items[:at], items[at:], []

class Adapter:
    dataloader = Loader()

    def setup(self, cfg):
        self.dataloader.setup(cfg)

    def get_dataloader(self):
        return self.dataloader

    def build_env_from_batch(self, batch, **kwargs):
        assert (batch.batch_size, batch.metadata) == (1, {{}})
        return list(batch.payload)

    def build_reference_text(self, item):
        return f"the name is {{item['task_type']}} long"

    def one(self, item, skill):
        try:
            answer, usage = chat_target(system=skill, user=item["question"])
        except Exception as error:
            return {{"id": item["id"], "hard": 0, "fail_reason": f"swallowed {{error}}"}}
        assert usage["total_tokens"] > 0
        hard = int(f"<{{item['question']}}>" in answer)
        return {{"id": item["id"], "hard": hard, "soft": 0.25 + 0.75 * hard}}

    def rollout(self, env_manager, skill_content, out_dir, **kwargs):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda item: self.one(item, skill_content), env_manager))

test_names = tasks_of(Adapter(), cfg={{"train": 4}}, chat=f"{{__name__}}:chat_target")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """Models that wrap the name in brackets once the skill asks for capitals."""
    pytester.makefile(".md", SKILL=SKILL)
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider -p no:xdist"
        skillopt_rollouts = 1
        """
    )

    def reply(body: Body) -> str:
        system, user = (body["messages"][i]["content"] for i in (0, -1))
        if "response_format" in body:
            return proposal(RULE)
        names = [name for name in NAMES if name in user]
        return f"<{names[0]}>" if "capitals" in system and names else "no"

    chat_server.reply = reply
    return pytester


REFERENCE = "Reference, never to be quoted in the skill: the name is 4 letters long"
KINDS = "pass rates by kind of task (tasks): 3 letters 0.0 -> 100.0 % (6), 4"


@pytest.mark.parametrize(
    ("source", "shown", "soft", "kinds"),
    [(QA, "", 0, ""), (ADAPTER, REFERENCE, 0.25, KINDS)],
    ids=["skillrl", "skillopt"],
)
def test_an_environment_trains_in_its_own_splits(
    project: pytest.Pytester,
    chat_server: ChatServer,
    source: str,
    shown: str,
    soft: float,
    kinds: str,
) -> None:
    """Analysts see the reference of an item, if there is one; soft scores arrive, and kinds."""
    project.makepyfile(test_env=source)
    plan = project.runpytest_inprocess("--collect-only", "-q", "--skillopt-train")
    plan.stdout.fnmatch_lines(["test_env.py::test_*[[]Ada[]]", "*8 tasks (4 train, 4 val)*"])
    result = project.runpytest_inprocess("--skillopt-train", "-oskillopt_final_rollouts=3")
    assert result.ret == 0, result.stdout.str()
    assert RULE in (project.path / "SKILL.md").read_text()
    asked = [asked_in(b) for b in chat_server.bodies if "response_format" in b]
    assert any(shown in text for text in asked)
    assert kinds in " ".join(result.stdout.str().split())
    (page,) = (project.path / ".skillopt" / "runs").glob("*/report.html")
    assert kinds.partition(":")[0] in page.read_text()
    assert {row["score"] for row in latest_entries(project.path, "rollout")} == {soft, 1}


@pytest.mark.parametrize("source", [QA, ADAPTER], ids=["skillrl", "skillopt"])
def test_a_fault_is_no_wrong_answer_even_where_the_environment_swallows_it(
    project: pytest.Pytester, chat_server: ChatServer, source: str
) -> None:
    project.makepyfile(test_env=source)
    down: Answer = chat_server.answer.error(401, "no such key")
    chat_server.reply = lambda body: down
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    said = result.stdout.str()
    assert result.ret != 0
    assert "swallowed" not in said
    assert "401" in said or "no such key" in said


@each_row(
    ("call", "given"),
    [
        ('messages=[{"role": "user", "content": item["question"]}], n=2', "with n"),
        ('system=skill, user=item["question"], tool_choice="required"', "with tool_choice"),
        ("[]", "without a prompt"),
    ],
)
def test_a_call_that_cannot_be_passed_on_is_no_wrong_answer(
    project: pytest.Pytester, chat_server: ChatServer, call: str, given: str
) -> None:
    """Though the adapter takes it for one: a model that is asked nothing has failed nothing."""
    theirs = 'system=skill, user=item["question"]'
    assert theirs in ADAPTER
    project.makepyfile(test_env=ADAPTER.replace(theirs, call))
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    said = " ".join(result.stdout.str().split())
    assert f"the adapter calls its model {given}" in said
    assert "swallowed" not in said
    assert chat_server.calls == 0


def test_a_list_of_messages_with_tools_is_passed_on(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """As SkillOpt's ``chat_target_messages``: the adapter runs the tools itself."""
    theirs = 'system=skill, user=item["question"]'
    messages = '[{"role": "system", "content": skill}, {"role": "user", "content": "Which name?"}]'
    source = ADAPTER.replace(f"chat_target({theirs})", f"self.talk({messages}, item)")
    source = source.replace(
        "    def one(",
        """    def talk(self, messages, item):
        tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
        call = dict(tools=[tool], tool_choice="auto", return_message=True)
        message, _ = chat_target(messages, **call)
        (asked,) = message.tool_calls
        messages.append({"role": "assistant", "content": message.content,
                         "tool_calls": [asked.model_dump(mode="json")]})
        result = item["question"] if asked.function.name == "look" else "no such tool"
        messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})
        return chat_target(messages=messages, tools=[tool])

    def one(""",
    )
    project.makepyfile(test_env=source)
    (project.path / "SKILL.md").write_text(f"{SKILL}\n{RULE}\n")
    reply = chat_server.reply
    chat_server.reply = lambda body: (
        chat_server.answer.tool("look") if len(body["messages"]) == 2 else reply(body)
    )
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    result.assert_outcomes(passed=1)
    first, second = chat_server.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["look"]
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "tool"]


PLANNED = """
import random
from pytest_skillopt.plugins.published import tasks_of

class Loader:
    '''As a BaseDataLoader of a simulator: it only plans batches.'''
    def build_train_batch(self, batch_size, seed, **kwargs):
        return {"phase": "train", "seed": seed, "n": batch_size}
    def build_eval_batch(self, env_num, split, seed, **kwargs):
        return {"phase": split, "seed": seed, "n": env_num}

class Adapter:
    def get_dataloader(self): return LOADER
    def build_env_from_batch(self, batch): return batch
    def rollout(self, env, skill, out_dir):
        if LOADER is None:
            env = {"phase": env.split, "seed": env.seed, "n": env.batch_size}
        print("episode", env["phase"], env["seed"], env["n"])
        return [{"id": "it", "hard": 1, "soft": 1.0}]

LOADER = Loader()
test_episode = tasks_of(Adapter(), episodes={"train": 2, "val": 1, "test": 1})
"""


@pytest.mark.parametrize("loader", ["Loader()", "None"])
def test_episodes_that_a_loader_only_plans_are_tasks(project: pytest.Pytester, loader: str) -> None:
    project.makepyfile(test_env=PLANNED.replace("LOADER = Loader()", f"LOADER = {loader}"))
    result = project.runpytest_inprocess("-s", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        ["*[[]train-0[]] episode train 0 1", "*train 1 1", "*val 1000000 1", "*test 2000000 1"]
    )


def test_two_environments_may_call_one_function_under_skills_of_their_own(
    project: pytest.Pytester,
) -> None:
    (line,) = (line for line in ADAPTER.splitlines() if line.startswith("test_names"))
    other = line.replace("test_names", "test_more").replace("cfg=", "skill='other.md', cfg=")
    project.makepyfile(test_env=f"{ADAPTER}\n{other}\n")
    (project.path / "SKILL.md").write_text(f"{SKILL}\n{RULE}\n")
    (project.path / "other.md").write_text(SKILL)
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    result.assert_outcomes(passed=1, failed=1)


def test_a_score_that_is_no_number_does_not_pass() -> None:
    rollout = Recorded()
    for row in ({"hard": math.nan}, {"hard": 1, "soft": math.inf}):
        with pytest.raises(TypeError, match="needs the numbers 'hard' and 'soft'"):
            score_row(row, rollout)
    score_row({"hard": 1, "soft": 0.5}, rollout)
    assert rollout.scores == [0.5]


class Recorded:
    def __init__(self) -> None:
        self.scores: list[float] = []

    def score(self, value: float) -> None:
        self.scores.append(value)


def test_what_cannot_become_tasks_says_why(project: pytest.Pytester) -> None:
    lines = {
        "tasks_of(object())": "object is neither a skillrl SkillEnv*",
        "tasks_of(Empty())": "the environment has no item in train, val or test",
        "tasks_of(Simulator())": "Simulator has no data loader with train_items*",
        "tasks_of(Loaded(), chat='nowhere:chat')": (
            "chat='nowhere:chat' is not an existing 'module:function'*"
        ),
    }
    project.makepyfile(
        kinds="""
        class Empty:
            def get_items(self, split): return []
            def rollout_one(self, **kwargs): pass
        class Simulator:
            def get_dataloader(self): return None
            def build_env_from_batch(self, batch): pass
            def rollout(self, *args): pass
        class Loaded(Simulator):
            train_items = val_items = test_items = [{"id": 1}]
            def get_dataloader(self): return self
        """
    )
    head = "from kinds import *\nfrom pytest_skillopt.plugins.published import tasks_of\n"
    project.makepyfile(**{f"test_{n}": f"{head}test_it = {line}" for n, line in enumerate(lines)})
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines([f"*UsageError: tasks_of: {said}" for said in lines.values()])
    assert result.ret == 2


@pytest.mark.parametrize("reason", ["", "the sandbox is gone"])
def test_an_agent_that_did_not_run_is_a_fault_and_no_wrong_answer(
    project: pytest.Pytester, reason: str
) -> None:
    found = """return {"id": item["id"], "hard": hard, "soft": 0.25 + 0.75 * hard}"""
    assert found in ADAPTER
    row = {"hard": 0, "soft": 0.0, "agent_ok": False, "fail_reason": reason}
    project.makepyfile(test_env=ADAPTER.replace(found, f"return {{'id': item['id'], **{row!r}}}"))
    result = project.runpytest_inprocess("--skillopt", "-oskillopt_max_attempts=1")
    said = result.stdout.str()
    assert "infrastructure error" in said
    assert f"agent_ok is False): {reason or 'it gives no fail_reason'}" in said
    assert "0.0 %" not in said


def test_a_skipped_task_is_not_counted_with_its_kind() -> None:
    result = build(mode="evaluate", status="measured", tasks=3)
    rows = [row.model_copy(update={"kind": "long"}) for row in result.skills[0].tasks]
    rows[0] = rows[0].model_copy(update={"before": Arm(), "after": None, "skipped": True})
    config: Any = None
    result = with_skill(result, tasks=rows).model_copy(update={"notes": []})
    pytest_skillopt_result(config, result)
    (said,) = result.notes
    assert said.endswith(" (2)")
