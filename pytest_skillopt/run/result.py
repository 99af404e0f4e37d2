"""The schema of ``result.json``: all data of a report. Reports are rendered from it only."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from pytest_skillopt.model.structured import problems
from pytest_skillopt.rates import interval, pass_hat_k
from pytest_skillopt.rollouts.rollout import Message  # noqa: TC001 (pydantic reads it)
from pytest_skillopt.skill.edits import EditField  # noqa: TC001 (pydantic reads it)
from pytest_skillopt.skill.version import SKILL_FILE
from pytest_skillopt.untrusted import encodable, parsed, redact
from pytest_skillopt.words import effect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.skill.edits import Edit

SCHEMA = "skillopt-result/1"
_NO_RESULT = "result.json is not a result"
MOST = 1e308
"""Most that a number of a record may be, so that each can become a float."""

EditStatus = Literal["accepted", "rejected", "refused", "given up", "open", "dropped"]
Status = Literal["accepted", "rejected", "unmeasured", "unchanged", "measured", "interrupted"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class UsageRow(_Record):
    """Calls of one role and stage. ``cost`` is in US dollars, null if no price is known."""

    role: str
    stage: str
    calls: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    estimated: bool = False
    read_tokens: int = 0
    """Input tokens that were read from the provider's prompt cache."""
    written_tokens: int = 0
    full_price: bool = False
    """True if their price is not known, so that the cost is too high."""


class RolloutSample(_Record):
    """A stored transcript, as an example."""

    outcome: str
    message: str = ""
    transcript: list[Message] = Field(default_factory=list)


class Arm(_Record):
    """One task under one version."""

    passed: int = 0
    n: int = 0
    score: float | None = None
    errors: int = 0
    read: int | None = None
    """Rollouts in which the skill's body reached the model; null if unknown."""
    sample: RolloutSample | None = None


class TaskRow(_Record):
    """A task before and after; ``change`` follows the gate's evidence if any, else counts."""

    id: str
    split: str
    must_pass: bool = False
    trigger: bool | None = None
    """Expectation of a trigger task: true if the agent should use the skill."""
    of: str = ""
    """Path of the other skill that a trigger task is about, if descriptions are trained together.
    """
    kind: str = ""
    """Kind of the task, as its marker names it."""
    none: Arm | None = None
    """Arm without any skill, if an earlier run has measured it for the same task and model."""
    start: Arm | None = None
    """Samples of a training under the version at the start, all of them; ``before`` has those
    of the final comparison, if there was one."""
    before: Arm
    after: Arm | None = None
    change: Literal["fixed", "likely", "broken", "undecided", "same"] = "same"
    expected: float | None = None
    """Expected change of the pass rate by accepted edits, in [-1, 1], by all samples of the run;
    null if the search does not tell it. Without proof a task is ``likely`` fixed from 0.2 on."""
    flaky: bool = False
    """Both passed and failed under one version."""
    skipped: bool = False
    hoped: float | None = None
    """Expected pass rate of a train task with all edits that probably help, proposed so far, by all
    samples of the run; null if the search does not tell it."""
    passed: int = 0
    """Passed rollouts of the run, under any version and for any purpose."""
    samples: int = 0
    """Measured rollouts of the run, of which ``passed`` passed."""
    calls: int = 0
    """Calls in all rollouts of the run, cached ones included; so are ``tokens`` and ``cost``."""
    tokens: int = 0
    cost: float | None = None


class Rate(_Record):
    """Mean over tasks of the pass rate, with a 95 % interval over rollouts; all in [0, 1]."""

    rate: float
    low: float
    high: float
    tasks: int
    samples: int
    k: int | None = None
    """Fewest rollouts of a task, under either version of a comparison; null if not recorded."""
    all_k: float | None = None
    """pass^k: the mean over tasks of the probability that ``k`` rollouts of it all pass."""

    @classmethod
    def of(cls, counts: Iterable[tuple[int, int]], k: int = 0) -> Rate | None:
        """Average passed / measured over tasks; None if no task was measured.

        Args:
            counts: (passed, measured) of each task; tasks that were never measured are left out.
            k: of pass^k, at most the fewest samples of a task; 0: these.
        """
        known = [(passed, n) for passed, n in counts if n]
        if not known:
            return None
        rate = sum(passed / n for passed, n in known) / len(known)
        low, high = interval(known)
        k = k or min(n for _, n in known)
        samples = sum(n for _, n in known)
        all_k = fmean(pass_hat_k(passed, n, k) for passed, n in known)
        return cls(
            rate=rate,
            low=min(low, rate),
            high=max(high, rate),
            tasks=len(known),
            samples=samples,
            k=k,
            all_k=all_k,
        )


class Comparison(_Record):
    """Two versions measured on the same tasks."""

    before: Rate
    after: Rate | None = None


class GainRow(_Record):
    """Pass rate of all train and val tasks without and with the edits, as estimated at the end."""

    before: float
    """Rate in [0, 1], as all others."""
    after: float
    low: float
    """Low end of the 95 % interval of the gain."""
    high: float
    tasks: int
    """Number of these tasks."""
    fresh: int
    """Number of them that the final comparison has measured under both versions."""
    pairs: int
    """Fresh samples of each version."""
    is_model: bool
    """True if the estimate counts all samples of the run; false if it is that of the fresh ones."""

    @property
    def gain(self) -> float:
        return self.after - self.before


class ProspectRow(_Record):
    """Expected result of further rollouts of a search, when it ended."""

    rollouts: int
    chance: float
    """Probability that they find another edit that helps, in [0, 1]."""
    gain: float
    """Its expected change of the mean pass rate of the train tasks, in [-1, 1]."""


class NeedRow(_Record):
    """The tasks or pairs that show a gain of the estimated size in four of five comparisons."""

    pairs: int = 0
    """Fresh samples of each version; 0 if these tasks are too few for any number."""
    option: str = ""
    """Setting that allows more, or a new seed, as ``skillopt_NAME=VALUE``."""
    tasks: int = 0
    """Number of tasks, if these are too few."""


class EditRow(_Record):
    """One proposed edit and its fate."""

    op: str
    target: str = ""
    content: str = ""
    reason: str = ""
    tasks: list[str] = Field(default_factory=list)
    """Train tasks whose failures led to it."""
    support: int = 1
    step: int = 0
    status: EditStatus = "rejected"
    """``rejected``: by a gate or the final comparison; ``refused``: by a check, before any sample;
    ``given up``: it hardly helps, by the samples of the search; ``open``: not known when the search
    ended; ``dropped``: left out for another reason."""
    why: str = ""
    """Reason for the status."""
    effects: dict[str, float] = Field(default_factory=dict)
    """Expected change of the pass rate of the train tasks that asked for it, in [-1, 1], by task.
    """
    chance: float | None = None
    """Probability that it helps, in [0, 1], by the samples of the search; null if unknown."""
    points: float | None = None
    """Expected change of the mean pass rate of the train tasks by it, in [-1, 1]."""
    again: int = 0
    """Number of repeated proposals after it was given up or accepted."""
    file: str = SKILL_FILE
    """Path relative to the skill's folder."""
    field: EditField = "body"
    """Edited part of the file: its body, or the description in the frontmatter."""

    @property
    def figures(self) -> str:
        """Chance and points in words; empty if they are not known."""
        return effect(self.points, self.chance)

    @classmethod
    def of(cls, edit: Edit, status: EditStatus, why: str = "", **more: Any) -> EditRow:
        """Describe an edit and its fate, without secrets that the optimizer may have written."""
        written = {"target": edit.target, "content": edit.content, "reason": edit.reason}
        texts: dict[str, Any] = {name: redact(text) for name, text in written.items()}
        return cls(
            op=edit.op,
            **texts,
            tasks=list(edit.tasks),
            support=edit.support,
            step=edit.step,
            status=status,
            why=redact(why),
            file=edit.file,
            field=edit.field,
            **more,
        )


class StepRow(_Record):
    """One step of the search."""

    step: int
    epoch: int = 1
    candidate: str = ""
    """Version of the candidate; empty if there was none."""
    edits: int = 0
    train: float | None = None
    """Pass rate on the step's train tasks under the working skill; in the default search as
    expected from all samples so far."""
    tasks: int = 0
    """Number of the step's measured train tasks."""
    before: float | None = None
    """Val pass rate of the current skill in the gate."""
    after: float | None = None
    verdict: Literal["accepted", "rejected", "unmeasured", "none"] = "none"
    reason: str = ""
    gate: str = ""


class WarningRow(_Record):
    """A warning for the reader of an allowed change."""

    rule: str
    message: str
    excerpt: str = ""


class CostRow(_Record):
    """Tokens, US dollars and seconds per rollout: means over the tasks of all measured versions.

    Dollars are null if no price is known, all ``_after`` are if only one version was measured.
    """

    tokens_before: float
    tokens_after: float | None = None
    dollars_before: float | None = None
    dollars_after: float | None = None
    seconds_before: float
    seconds_after: float | None = None

    @property
    def increase(self) -> float:
        """Increase of the tokens in percent; 0 without tokens or a second version."""
        after = self.tokens_before if self.tokens_after is None else self.tokens_after
        return 100 * (after / self.tokens_before - 1) if self.tokens_before else 0.0


class _Skill(_Record):
    """Skill of a result and its versions, which come first in ``result.json``."""

    path: str
    name: str
    before: str
    """Version (SHA-256) at the start."""
    after: str
    """Version at the end; equal to ``before`` if nothing was accepted."""


class Findings(_Record):
    """Findings of a mode about a skill."""

    status: Status
    reason: str
    warnings: list[WarningRow] = Field(default_factory=list)
    """Warnings of the lint about text that the new version adds."""
    suite: Comparison | None = None
    """The final comparison, of train and val, which decides about writing: on fresh samples, except
    for the tasks that ``from_search`` counts."""
    from_search: int = 0
    """Tasks of ``suite`` whose rate before comes from samples of the search: under a cap the final
    comparison takes only as many fresh samples of the old skill as it needs to decide."""
    gain: GainRow | None = None
    """Estimated gain of the new version, or of the best candidate if it was rejected."""
    ended: str = ""
    """Why the search ended, if ``reason`` is that of the verdict after it."""
    cap: str = ""
    """Higher cap with which the search would go on, as ``skillopt_NAME=VALUE``; empty if no cap
    ended it."""
    prospect: ProspectRow | None = None
    """Expected result of further rollouts; null if the search tells none."""
    need: NeedRow | None = None
    """Evidence that the best candidate lacked, if it was rejected for that."""
    val: Comparison | None = None
    test: Comparison | None = None
    steps: list[StepRow] = Field(default_factory=list)
    edits: list[EditRow] = Field(default_factory=list)
    tasks: list[TaskRow] = Field(default_factory=list)
    cost: CostRow | None = None
    shared_train_val: bool = False
    """True if too few tasks for splits: measured on the tasks that the edits came from."""


class SkillResult(Findings, _Skill):
    """The result for one skill."""

    written: bool = False
    unwritten: str = ""
    """Why an accepted version was not written."""
    patch: str = ""
    """Unified diff from before to after."""
    none_from: str = ""
    """The run that measured the tasks without any skill; empty if none did."""
    noise_floor: float | None = None
    """Standard deviation of the suite pass rate between two evaluations of one version, measured by
    an A/A run."""
    verdict: dict[str, Any] | None = None
    """The deciding verdict with its evidence (``Verdict.to_json``)."""


class TargetRow(_Record):
    """The suite with one of several models or agents."""

    target: str
    """The model, the agent or both, as far as there are several."""
    run: str = ""
    """Name of the run that has its whole result; empty if there is none."""
    status: Status
    reason: str
    rate: Rate | None = None
    """Mean pass rate of its measured tasks."""
    tasks: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Passed and measured rollouts, by task."""


class Result(_Record):
    """A run of the plugin."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    mode: str = Field(pattern="^[a-z]+$")
    """Name of its mode, such as ``train`` or ``check``."""
    run: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    status: Status
    reason: str
    command: list[str]
    """Command that repeats the run."""
    skills: list[SkillResult] = Field(default_factory=list)
    targets: list[TargetRow] = Field(default_factory=list)
    """Results with several models or agents side by side; empty except in the mode ``matrix``."""
    models: dict[str, str] = Field(default_factory=dict)
    """``provider:model`` by role."""
    simulated: bool = False
    """True if a simulated model took part: the figures say nothing about a real one."""
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    usage: list[UsageRow] = Field(default_factory=list)
    rollouts: int = 0
    errors: int = 0
    """Rollouts that ended in an infrastructure error."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the reader: moved splits, few tasks, unreadable replies, refused writes."""
    resume: str = ""
    """Command that continues a run which ended early."""

    model_config = ConfigDict(populate_by_name=True)

    def dump(self, exclude: Any = None) -> str:
        """Return the JSON text that is stored; it has ``?`` for a lone surrogate."""
        try:
            return self.model_dump_json(by_alias=True, indent=1, exclude=exclude)
        except PydanticSerializationError:
            found = self.model_dump(mode="json", by_alias=True, exclude=exclude)
            return encodable(json.dumps(found, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, text: str | bytes) -> Result:
        """Parse a stored result without the fields that only other versions of the package have.

        Raises:
            ValueError: it is not a result of this schema.
        """
        try:
            known = parsed(text, _number)
            result = cls.model_validate(known)
        except ValidationError as error:
            unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
            if len(unknown) < error.error_count():
                raise ValueError(f"{_NO_RESULT}: {problems(error, 'it')}") from None
            for *place, name in unknown:
                del reduce(getitem, place, known)[name]
            result = cls.model_validate(known)
        except ValueError as error:
            raise ValueError(f"{_NO_RESULT}: {error}") from None
        if result.schema_ != SCHEMA:
            raise ValueError(f"result.json has schema {result.schema_!r}, not {SCHEMA!r}")
        return result


def _number(text: str) -> float:
    found = float(text)
    if not abs(found) <= MOST:  # NaN, too
        raise ValueError(f"{text[:20]} is not a measurement")
    return int(text) if text.lstrip("-").isdigit() else found
