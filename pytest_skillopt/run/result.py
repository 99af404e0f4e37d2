"""``result.json``: everything a report shows, as data. All reports are rendered from it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_skillopt.model.structured import problems
from pytest_skillopt.skill.document import SKILL_FILE
from pytest_skillopt.skill.edits import EditField  # noqa: TC001 (pydantic reads it)
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.skill.edits import Edit

SCHEMA = "skillopt-result/1"

Mode = Literal["train", "evaluate", "check", "compare", "aa"]
EditStatus = Literal["accepted", "rejected", "refused", "lost", "dropped"]
Status = Literal["accepted", "rejected", "unmeasured", "unchanged", "measured", "interrupted"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class UsageRow(_Record):
    """Calls of one role and stage. ``cost`` is in US dollars, null where no price is known."""

    role: str
    stage: str
    calls: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


class Turn(_Record):
    """One message of a transcript."""

    role: str
    content: str


class RolloutSample(_Record):
    """One kept transcript, as an example of how a task went."""

    outcome: str
    message: str = ""
    transcript: list[Turn] = Field(default_factory=list)


class Arm(_Record):
    """One task under one version."""

    passed: int = 0
    n: int = 0
    score: float | None = None
    errors: int = 0
    read: int | None = None
    """Rollouts in which the skill's body reached the model; null where no proxy could tell."""
    sample: RolloutSample | None = None


class TaskRow(_Record):
    """A task before and after. ``change`` is by evidence where the gate has it, else by counts."""

    id: str
    split: str
    must_pass: bool = False
    trigger: bool | None = None
    """Of a trigger task: whether the skill should be asked for."""
    marks: list[str] = Field(default_factory=list)
    """Markers of the project's own."""
    none: Arm | None = None
    """Without any skill, where an earlier run has measured that on the same task and model."""
    before: Arm
    after: Arm | None = None
    change: Literal["fixed", "broken", "undecided", "same"] = "same"
    flaky: bool = False
    """Both passed and failed under one version."""
    skipped: bool = False
    calls: int = 0
    """Of all rollouts of the run, answers of the cache included; ``tokens`` and ``cost`` too."""
    tokens: int = 0
    cost: float | None = None


class Rate(_Record):
    """Mean over tasks of the pass rate, with a 95 % interval over rollouts; all in [0, 1]."""

    rate: float
    low: float
    high: float
    tasks: int
    samples: int


class Comparison(_Record):
    """Two versions measured on the same tasks."""

    before: Rate
    after: Rate | None = None


class EditRow(_Record):
    """One proposed edit and what became of it."""

    op: str
    target: str = ""
    content: str = ""
    reason: str = ""
    tasks: list[str] = Field(default_factory=list)
    """Train tasks that called for it."""
    support: int = 1
    step: int = 0
    status: EditStatus = "rejected"
    """``rejected``: by a gate or the final comparison; ``refused``: by a check, before any sample;
    ``lost``: its trial on the tasks that asked for it; ``dropped``: not missed when left out."""
    why: str = ""
    """Why it was rejected, refused or dropped, or how it lost."""
    effects: dict[str, float] = Field(default_factory=dict)
    """Change of the pass rate of train tasks in its trial, in [-1, 1], by task."""
    left_out: dict[str, float] = Field(default_factory=dict)
    """Change of the pass rate of train tasks when it was left out again, in [-1, 1], by task."""
    again: int = 0
    """Times that it was proposed once more after it had lost or was accepted, and was not tried."""
    file: str = SKILL_FILE
    """Relative to the skill's folder."""
    field: EditField = "body"
    """What of the file: its body, or the description in the frontmatter."""

    @classmethod
    def of(cls, edit: Edit, status: EditStatus, why: str = "", **more: Any) -> EditRow:
        """An edit and what became of it, without secrets that the optimizer may have written."""
        return cls(
            op=edit.op,
            target=redact(edit.target),
            content=redact(edit.content),
            reason=redact(edit.reason),
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
    """Version of the candidate, empty when there was none."""
    edits: int = 0
    train: float | None = None
    """Pass rate on the step's train tasks under the working skill."""
    tasks: int = 0
    """Those tasks, as far as they were measured."""
    passing: int = 0
    """Those of them that passed in every sample."""
    before: float | None = None
    """Val pass rate of the current skill, in the gate."""
    after: float | None = None
    verdict: Literal["accepted", "rejected", "unmeasured", "none"] = "none"
    reason: str = ""
    gate: str = ""


class Hunk(_Record):
    """One hunk of the accepted diff and the edits that made it; ``reasons`` and ``tasks`` are those
    of all of them together."""

    diff: str
    reasons: list[str] = Field(default_factory=list)
    tasks: list[str] = Field(default_factory=list)
    edits: list[EditRow] = Field(default_factory=list)


class WarningRow(_Record):
    """What a reader of the change should look at, though it is allowed."""

    rule: str
    message: str
    excerpt: str = ""


class ScanRow(_Record):
    """What the scanner of ``skillopt_scan`` said of the new version."""

    command: str
    status: int | None = None
    """Exit status; null where it came to none. All but 0 refuse."""
    output: str = ""


class CostRow(_Record):
    """What a rollout takes under both versions: means over tasks of the final comparison."""

    tokens_before: float
    tokens_after: float
    seconds_before: float
    seconds_after: float


class SkillResult(_Record):
    """What happened to one skill."""

    path: str
    name: str
    before: str
    """Version (SHA-256) at the start."""
    after: str
    """Version at the end; equal to ``before`` when nothing was accepted."""
    status: Status
    reason: str
    written: bool = False
    patch: str = ""
    """Unified diff from before to after."""
    hunks: list[Hunk] = Field(default_factory=list)
    warnings: list[WarningRow] = Field(default_factory=list)
    """Of the lint, about what the new version adds."""
    scan: ScanRow | None = None
    suite: Comparison | None = None
    """The last comparison, of train and val, which decides about writing: on fresh samples, save
    those that ``from_search`` counts."""
    from_search: int = 0
    """Tasks of ``suite`` whose rate before comes from samples of the search: under a cap the last
    comparison takes no more fresh ones of the old skill than settle it."""
    none: Rate | None = None
    """Without any skill, over the tasks of ``suite``; null where not all of them were measured."""
    none_from: str = ""
    """The earlier run that measured it."""
    val: Comparison | None = None
    test: Comparison | None = None
    test_openings: int = 0
    """How often the test split has been measured over all runs."""
    noise_floor: float | None = None
    """Standard deviation of the suite pass rate between two evaluations of one version: that which
    an A/A measured, or the skill on disk of a training."""
    smallest_gain: float | None = None
    """Smallest gain in points of the pass rate that the gate would see with power 0.8."""
    verdict: dict[str, Any] | None = None
    """The deciding verdict with its evidence (``Verdict.to_json``)."""
    steps: list[StepRow] = Field(default_factory=list)
    edits: list[EditRow] = Field(default_factory=list)
    tasks: list[TaskRow] = Field(default_factory=list)
    cost: CostRow | None = None
    shared_train_val: bool = False
    """Too few tasks for splits: measured on the tasks that the edits came from."""


class Result(_Record):
    """A run of the plugin."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    mode: Mode
    run: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    status: Status
    reason: str
    command: list[str]
    """What to run to do the same again."""
    skills: list[SkillResult] = Field(default_factory=list)
    models: dict[str, str] = Field(default_factory=dict)
    """Role to ``provider:model``."""
    simulated: bool = False
    """A simulated model took part: the figures say nothing about a real one."""
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    usage: list[UsageRow] = Field(default_factory=list)
    rollouts: int = 0
    errors: int = 0
    """Rollouts that ended in an infrastructure error."""
    notes: list[str] = Field(default_factory=list)
    """Whatever a reader must know: moved splits, few tasks, unreadable replies, refused writes."""
    resume: str = ""
    """Command that continues a run which ended early."""

    model_config = ConfigDict(populate_by_name=True)

    def dump(self) -> str:
        """JSON text, the form in which it lies in the run directory."""
        return self.model_dump_json(by_alias=True, indent=1)

    @classmethod
    def load(cls, text: str | bytes) -> Result:
        """Read it back. ValueError, which says why, for anything else than a result of this
        schema."""
        try:
            result = cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(f"result.json is not a result: {problems(error, 'it')}") from None
        if result.schema_ != SCHEMA:
            raise ValueError(f"result.json has schema {result.schema_!r}, not {SCHEMA!r}")
        return result
