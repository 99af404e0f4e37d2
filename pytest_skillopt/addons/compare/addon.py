"""Modes that compare two versions, and the baseline of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later
from pytest_skillopt.options import Mode
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from pytest_skillopt import Result
    from pytest_skillopt.addons.compare import check, compare, comparison
else:
    check, compare = Later("compare.check"), Later("compare.compare")
    comparison = Later("compare.comparison")


_MODES = (
    Mode(
        name="aa",
        flag="--skillopt-aa",
        help="measure the noise: compare the skill with itself",
        function="pytest_skillopt.addons.compare.aa:aa",
        doing="measuring the noise of",
        samples=lambda task, settings: 2 * settings.rollouts,
        typical=1.0,
        sides=("first", "second"),
        noise=True,
    ),
    Mode(
        name="compare",
        flag="--skillopt-compare",
        help="compare two skills: files, revisions, run versions, none",
        function="pytest_skillopt.addons.compare.compare:compare",
        doing="comparing",
        samples=lambda task, settings: 2 * settings.final_rollouts,
        option={"nargs": 2, "metavar": ("A", "B")},
        sides=("first", "second"),
    ),
    Mode(
        name="drift",
        flag="--skillopt-drift",
        help="tell if the skill still helps today's model",
        function="pytest_skillopt.addons.compare.drift:drift",
        doing="measuring the drift of",
        samples=lambda task, settings: 4 * settings.final_rollouts,
        sides=("without", "with"),
        answers={
            "accepted": ("Still helps", "good"),
            "rejected": ("Not shown to help", "bad"),
            "unmeasured": ("Cannot tell", "careful"),
        },
        fails=("rejected", "unmeasured"),
    ),
    Mode(
        name="check",
        flag="--skillopt-check",
        help="fail if SKILL.md is credibly worse than at revision REF",
        function="pytest_skillopt.addons.compare.check:check",
        doing="checking",
        samples=lambda task, settings: 2 * settings.gate_kmax,
        rounds=lambda settings: settings.gate_k0,
        late_probe=True,
        option={"nargs": "?", "metavar": "REF", "const": "HEAD"},
        more={
            "--skillopt-check-strict": (
                "with --skillopt-check: also fail on too little evidence",
                {"action": "store_true"},
            ),
        },
        answers={
            "accepted": ("No regression found", "good"),
            "unchanged": ("No regression found", "good"),
            "rejected": ("Do not merge", "bad"),
        },
        fails=("rejected",),
    ),
    Mode(
        name="try",
        flag="--skillopt-try",
        help="judge a change made elsewhere: SKILL.md, folder, patch",
        function="pytest_skillopt.addons.compare.tries:try_change",
        doing="trying a change of",
        samples=lambda task, settings: 2 * settings.final_rollouts * (task.split != "test"),
        gated=True,
        option={"metavar": "FILE"},
        splits=True,
        late_probe=True,
        answers={
            "accepted": ("Accepted", "good"),
            "rejected": ("Keep the skill as it is", "neutral"),
            "unchanged": ("Keep the skill as it is", "neutral"),
        },
        fails=("rejected", "unmeasured"),
    ),
)


ADDON = AddOn(modes=_MODES, trained=compare.with_none)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "with --skillopt: save the counts for later checks"
    parser.getgroup("skillopt").addoption(
        "--skillopt-save-baseline", action="store_true", help=text
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse unknown versions, and a baseline of another mode, before a worker is started."""
    if _saves_baseline(config) and not config.getoption("skillopt_evaluate", False):
        raise pytest.UsageError("--skillopt-save-baseline needs --skillopt")
    ref, file, named = (
        config.getoption(f"skillopt_{o}", None) for o in ("check", "try", "compare")
    )
    if hasattr(config, "workerinput"):
        return
    if file and not (config.rootpath / file).exists():
        raise pytest.UsageError(f"--skillopt-try={file}: there is no such file or folder")
    if named:
        compare.check_names(config)
    if ref and not config.option.collectonly:
        # Any path: only the revision matters.
        comparison.at_revision(config.rootpath, "the project", ref)


def pytest_skillopt_notes(config: pytest.Config, result: Result) -> str | None:
    """Save the baseline if every task was measured."""
    wanted = _saves_baseline(config) and result.status == "measured"
    rows = [row for skill in result.skills for row in skill.tasks]
    if not wanted or any(not row.before.n and not row.skipped for row in rows):
        return None
    saved = check.write_baseline(config.rootpath, Settings.from_config(config).dir, result)
    return f"the counts were saved in {saved}"


def _saves_baseline(config: pytest.Config) -> bool:
    return bool(config.getoption("skillopt_save_baseline", False))
