"""The setting ``skillopt_published``: a configuration of SkillOpt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from refusals import assert_refused
from tables import each_row

from pytest_skillopt.plugins.published.config import read_settings
from pytest_skillopt.settings import FIELDS

if TYPE_CHECKING:
    from pathlib import Path

OWN = [field.name for field in FIELDS if field.metadata["published"]]
KEPT = """
import json
from pytest_skillopt import Settings

def pytest_sessionfinish(session):
    with open("settings.json", "w") as file:
        json.dump(Settings.from_config(session.config).to_json(), file)
"""


def test_a_file_with_its_base_is_settings_here(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model: {optimizer: gpt-x, target: gpt-y, reasoning_effort: medium,\n"
        "  backend: azure_openai, optimizer_backend: openai_chat, target_backend: codex_exec}\n"
        "train: {num_epochs: 4, batch_size: 40, seed: 42}\n"
        "optimizer: {learning_rate: 4, lr_scheduler: cosine, use_meta_skill: true}\n"
        "evaluation: {use_gate: true}\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "_base_: base.yaml\nbatch_size: 10\noptimizer: {learning_rate: 6, lr_control_mode: fixed}\n"
        "env: {split_seed: 7, workers: 24, exec_timeout: 300}\n"
    )
    unused = "backend, optimizer_backend, target, target_backend, workers$"
    with pytest.warns(UserWarning, match=f"skillopt_published: not used: {unused}"):
        found = read_settings("mine.yaml", tmp_path, OWN)
    assert found == {
        "optimizer": "openai:gpt-x",
        "requests": "reasoning_effort = medium",
        "request_timeout": 300,
        "timeout": 360,
        "epochs": 4,
        "batch_size": 10,
        "seed": 42,
        "edit_budget": 6,
        "schedule": "cosine",
        "meta_skill": True,
        "split_seed": 7,
    }
    (tmp_path / "base.yaml").write_text("_base_: mine.yaml\n")
    with pytest.raises(pytest.UsageError, match="is its own _base_"):
        read_settings("mine.yaml", tmp_path, OWN)


@each_row(
    ("text", "found"),
    [
        (
            "lr_scheduler: autonomous\nuse_gate: false\nskill_aware_consolidate_threshold: 0",
            {
                "schedule": "constant",
                "autonomous_budget": True,
                "gate": "off",
                "appendix_threshold": 0,
            },
        ),
        (
            "longitudinal_pair_policy: '10_01'\nlr_control_mode: auto",
            {"slow_update_pairs": "changed", "schedule": "constant", "autonomous_budget": True},
        ),
        (
            "target_model: my-gpt\nazure_openai_endpoint: https://mine.azure.com/\nmax_turns: 9",
            {"target": "openai:my-gpt@https://mine.azure.com/openai/v1", "max_turns": 9},
        ),
        ("exec_timeout: 0", {"timeout": 0}),
        ("contrasts: 6", {"contrasts": 6}),
    ],
)
def test_a_text_is_too(tmp_path: Path, text: str, found: dict[str, Any]) -> None:
    assert read_settings(text, tmp_path, OWN) == found


def test_a_text_is_put_over_the_file_it_is_based_on(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", mine="optimizer: {use_meta_skill: false}\ntrain: {num_epochs: 2}\n")
    pytester.makeini("[pytest]\nskillopt_published =\n  _base_: mine.yaml\n  epochs: 3\n")
    pytester.makeconftest(KEPT)
    pytester.runpytest_inprocess("--collect-only")
    kept = (pytester.path / "settings.json").read_text()
    assert '"meta_skill": false' in kept
    assert '"epochs": 3' in kept


@each_row(
    ("given", "said"),
    [
        ("skillopt_published=contrasts: -1", "skillopt_published: contrasts: -1 is out of range*"),
        (
            "skillopt_published=schedule: soon",
            "skillopt_published: schedule: 'soon' is not one*",
        ),
        ("skillopt_published=none.yaml", "skillopt_published: the text is neither a mapping nor*"),
        ("skillopt_published={", "skillopt_published: the text: *"),
        ("skillopt_meta_skill=no", "skillopt_meta_skill no longer exists: write it into *"),
        (
            "skillopt_published=gate_k0: 1",
            "skillopt_published: gate_k0 no longer exists: set skillopt_rollouts, which*",
        ),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(
    pytester: pytest.Pytester, given: str, said: str
) -> None:
    pytester.makefile(".md", SKILL="---\nname: a\ndescription: A.\n---\n\nSay ok.\n")
    assert_refused(pytester.runpytest_inprocess("--skillopt", "-o", given), f"ERROR: {said}")
