"""Evaluate the suite for each target in a session of its own, and put the results side by side."""

from __future__ import annotations

import itertools
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model.purse import CAPS, Amounts
from pytest_skillopt.options import command_line
from pytest_skillopt.report.figures import total
from pytest_skillopt.report.files import write_reports, write_result
from pytest_skillopt.report.terminal import lines
from pytest_skillopt.run.directory import Home
from pytest_skillopt.run.journal import Journal
from pytest_skillopt.run.result import Rate, Result, TargetRow
from pytest_skillopt.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.run.result import Status, UsageRow
    from pytest_skillopt.settings import Settings


class _Listener:
    """Plugin of a target's session that keeps its result."""

    result: Result | None = None

    def pytest_skillopt_finished(self, result: Result) -> None:
        self.result = result


@dataclass
class _Matrix:
    """Results of the targets so far, and what the caps of the whole matrix leave."""

    settings: Settings
    results: list[Result] = field(default_factory=list)
    rows: list[TargetRow] = field(default_factory=list)

    def left(self) -> dict[str, float]:
        """Return what is left of each cap that is set."""
        caps = Amounts.caps_of(self.settings)
        paid = Amounts.paid_by(total(self.usage))
        left = caps.minus(paid._replace(rollouts=self.rollouts, seconds=self.seconds))
        return {name: rest for name, cap, rest in zip(CAPS, caps, left, strict=True) if cap}

    @property
    def rollouts(self) -> int:
        return sum(result.rollouts for result in self.results)

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self.results)

    @property
    def usage(self) -> list[UsageRow]:
        return [row for result in self.results for row in result.usage]

    def add(self, target: str, result: Result) -> None:
        counts = {}
        for skill in result.skills:
            for row in skill.tasks:
                counts[row.id] = (row.before.passed, row.before.n)
        self.results.append(result)
        self.rows.append(
            TargetRow(
                target=target,
                run=result.run,
                status=result.status,
                reason=result.reason,
                rate=Rate.of(counts.values()),
                tasks=counts,
            )
        )

    def add_missing(self, target: str, reason: str) -> None:
        self.rows.append(TargetRow(target=target, status="unmeasured", reason=reason))

    @property
    def status(self) -> Status:
        found: list[Status] = [row.status for row in self.rows]
        if "interrupted" in found:
            return "interrupted"
        return "measured" if set(found) == {"measured"} else "unmeasured"


def evaluate_each(config: pytest.Config, settings: Settings) -> int:
    """Evaluate the suite for each target, one after the other; return pytest's exit status.

    The caps hold for all of them together.
    """
    matrix = _Matrix(settings)
    statuses = [0]
    for target, arguments in _targets(settings):
        if spent := [name for name, left in matrix.left().items() if left <= 0]:
            matrix.add_missing(target, f"skillopt_{spent[0]} is reached")
            continue
        if matrix.rows and matrix.rows[-1].status == "interrupted":
            matrix.add_missing(target, "the session was interrupted")
            continue
        caps = [f"--skillopt-{n.replace('_', '-')}={left}" for n, left in matrix.left().items()]
        listener = _Listener()
        own = config.invocation_params
        plugins = [*(own.plugins or ()), listener]
        status = pytest.main([*own.args, *arguments, *caps], plugins)
        statuses.append(int(status))
        if listener.result is not None:
            matrix.add(target, listener.result)
        else:
            matrix.add_missing(target, f"its session ended with exit status {int(status)}")
    if matrix.results:
        _report(config, matrix)
        statuses.append(int(matrix.status != "measured"))
    return max(statuses)


def _targets(settings: Settings) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each combination of an agent and a model, and the options that set it."""
    agents, models = (_listed(text) for text in (settings.harness, settings.target))
    for agent, model in itertools.product(agents, models):
        set_ = {"-oskillopt_harness": agent, "--skillopt-target": model}
        arguments = [f"{flag}={name}" for flag, name in set_.items() if name]
        yield ", ".join(filter(None, set_.values())), arguments


def _listed(text: str) -> list[str]:
    return [*dict.fromkeys(filter(None, map(str.strip, text.split(","))))] or [""]


def _shown(row: TargetRow) -> str:
    return percent(row.rate.rate) if row.rate else "not measured"


def _report(config: pytest.Config, matrix: _Matrix) -> None:
    results = matrix.results
    first = results[0]
    latest = results[-1]
    rates = "; ".join(f"{row.target} {_shown(row)}" for row in matrix.rows)
    seconds = round(matrix.seconds, 3)
    simulated = any(one.simulated for one in results)
    errors = sum(one.errors for one in results)
    command = command_line(config.invocation_params.args)
    settings = matrix.settings.to_json()
    directory = Home(config.rootpath / matrix.settings.dir).new_run()
    result = Result(
        mode="matrix",
        run=directory.name,
        # The latest of the session's runs: its targets are shown by their own names.
        started=latest.started,
        seconds=seconds,
        status=matrix.status,
        reason=f"pass rates: {rates}",
        command=command,
        simulated=simulated,
        versions=first.versions,
        settings=settings,
        usage=matrix.usage,
        rollouts=matrix.rollouts,
        errors=errors,
        targets=matrix.rows,
    )
    with Journal(directory.journal) as journal:
        journal.write("run", {"mode": "matrix", "runs": [row.run for row in matrix.rows]})
    write_result(directory.path, result)
    write_reports(directory.path, result)
    directory.close()
    for line in lines(result, shutil.get_terminal_size().columns):
        sys.stdout.write(f"{line.text}\n")
