"""Environments of skillrl and of SkillOpt as tasks, against a server on loopback."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges import initial_skill, settings_of, settle, tasks_of

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Answer, ChatServer

qa: Any = pytest.importorskip("skillrl.envs.qa")
configuration: Any = pytest.importorskip("skillrl.config")
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea"]
RULE = "Answer in capitals."
SKILL = "---\nname: names\ndescription: Repeats names.\n---\nRepeat the name.\n"

QA = f"""
from skillrl.envs.qa import SimpleQAEnv
from pytest_skillopt.addons.bridges import tasks_of

NAMES = {NAMES!r}

def items(names):
    return [{{"id": n, "question": f"Name {{n}}", "answers": [f"<{{n}}>"]}} for n in names]

test_qa = tasks_of(SimpleQAEnv(
    train_items=items(NAMES[:6]), val_items=items(NAMES[6:]), test_items=[]))
"""

ADAPTER = f"""
from concurrent.futures import ThreadPoolExecutor
from pytest_skillopt.addons.bridges import tasks_of

NAMES = {NAMES!r}

def chat_target(system, user, max_completion_tokens=16384, retries=5, stage="rollout"):
    raise AssertionError("SkillOpt's own backend was called")

class Loader:
    '''As SkillOpt's documentation states it: a SplitDataLoader after setup.'''
    def setup(self, cfg):
        items = [{{"id": name, "question": name}} for name in NAMES]
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

test_names = tasks_of(Adapter(), cfg={{"train": 6}}, chat=f"{{__name__}}:chat_target")
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """Models that wrap the name in brackets once the skill asks for capitals."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    pytester.makefile(".md", SKILL=SKILL)
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider -p no:xdist"
        """
    )

    def reply(body: dict[str, Any]) -> str:
        system, user = (body["messages"][i]["content"] for i in (0, -1))
        if "response_format" in body:
            edit = {"op": "append", "target": "", "content": RULE}
            return json.dumps({"reasoning": "missing", "edits": [edit]})
        names = [name for name in NAMES if name in user]
        return f"<{names[0]}>" if "capitals" in system and names else "no"

    chat_server.reply = reply
    return pytester


@pytest.mark.parametrize("source", [QA, ADAPTER], ids=["skillrl", "skillopt"])
def test_an_environment_trains_in_its_own_splits(project: pytest.Pytester, source: str) -> None:
    project.makepyfile(test_env=source)
    plan = project.runpytest_inprocess("--collect-only", "-q", "--skillopt-train")
    plan.stdout.fnmatch_lines(["test_env.py::test_*[[]Ada[]]", "*12 tasks (6 train, 6 val)*"])
    result = project.runpytest_inprocess("--skillopt-train", "-oskillopt_final_rollouts=3")
    assert result.ret == 0, result.stdout.str()
    assert RULE in (project.path / "SKILL.md").read_text()


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


def test_soft_scores_arrive(project: pytest.Pytester) -> None:
    project.makepyfile(test_env=ADAPTER)
    project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    (journal,) = (project.path / ".skillopt" / "runs").glob("*/journal.jsonl")
    scores = [
        entry["data"]["score"]
        for entry in map(json.loads, journal.read_text().splitlines())
        if entry["kind"] == "rollout"
    ]
    assert scores == [0.25]


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ('messages=[{"role": "user", "content": item["question"]}]', "with messages"),
        ('system=skill, user=item["question"], tools=[{}]', "with tools"),
        ('[{"role": "user", "content": item["question"]}]', "without a system or user prompt"),
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


def test_two_environments_may_call_one_function(project: pytest.Pytester) -> None:
    (line,) = (line for line in ADAPTER.splitlines() if line.startswith("test_names"))
    source = f"{ADAPTER}\n{line.replace('test_names', 'test_more')}\n"
    project.makepyfile(test_env=source)
    (project.path / "SKILL.md").write_text(f"{SKILL}\n{RULE}\n")
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "Ada")
    result.assert_outcomes(passed=2)


def test_a_score_that_is_no_number_does_not_pass() -> None:
    rollout = Recorded()
    for row in ({"hard": math.nan}, {"hard": 1, "soft": math.inf}):
        with pytest.raises(TypeError, match="needs the numbers 'hard' and 'soft'"):
            settle(row, rollout)
    settle({"hard": 1, "soft": 0.5}, rollout)
    assert rollout.scores == [0.5]


class Recorded:
    def __init__(self) -> None:
        self.scores: list[float] = []

    def score(self, value: float) -> None:
        self.scores.append(value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tasks_of(object())", "object is neither a skillrl SkillEnv*"),
        ("tasks_of(Empty())", "the environment has no item in train, val or test"),
        ("tasks_of(Simulator())", "Simulator has no data loader with train_items*"),
        (
            "tasks_of(Loaded(), chat='nowhere:chat')",
            "chat='nowhere:chat' is not an existing 'module:function'*",
        ),
    ],
)
def test_what_cannot_become_tasks_says_why(project: pytest.Pytester, line: str, said: str) -> None:
    project.makepyfile(
        test_env=f"""
        from pytest_skillopt.addons.bridges import tasks_of
        class Empty:
            def get_items(self, split): return []
            def rollout_one(self, **kwargs): pass
        class Simulator:
            def get_dataloader(self): return None
            def build_env_from_batch(self, batch): pass
            def rollout(self, *args): pass
        class Loaded(Simulator):
            train_items = val_items = test_items = [{{"id": 1}}]
            def get_dataloader(self): return self
        test_it = {line}
        """
    )
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines([f"*tasks_of: {said}"])
    assert result.ret == 2


def test_a_seed_skill_becomes_a_file_once(tmp_path: Path) -> None:
    env = qa.SimpleQAEnv(train_items=[], val_items=[], test_items=[], initial_skill="Be brief.")
    path = initial_skill(env, tmp_path / "qa" / "SKILL.md", "Answers questions.")
    assert path.read_text() == (
        "---\nname: simple-qa\ndescription: Answers questions.\n---\nBe brief.\n"
    )
    with pytest.raises(FileExistsError):
        initial_skill(env, path)


def test_settings_of_a_configuration_are_settings_here(project: pytest.Pytester) -> None:
    config = configuration.SkillOptConfig(num_epochs=2, edit_budget=5, gate_metric="soft", seed=3)
    keys = settings_of(config)
    assert keys["skillopt_epochs"] == 2
    assert (keys["skillopt_edit_budget"], keys["skillopt_metric"]) == (5, "soft")
    project.makepyfile(test_env=QA)
    flags = [f"-o{key}={value}" for key, value in keys.items()]
    plan = project.runpytest_inprocess("--collect-only", "-q", "--skillopt-train", *flags)
    assert plan.ret == 0, plan.stderr.str()


def test_tasks_carry_their_splits() -> None:
    item = {"id": "a", "question": "q", "answers": ["x"]}
    env = qa.SimpleQAEnv(train_items=[item], val_items=[], test_items=[item])
    test = tasks_of(env, skill="S.md")
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    splits = [param.marks[0].kwargs for param in mark.args[1]]
    assert splits == [{"split": "train", "skill": "S.md"}, {"split": "test", "skill": "S.md"}]
