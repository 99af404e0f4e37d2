"""Check a proposal before it is pushed. Nothing in a proposal is trusted.

A proposal may come from a job that ran tests, tools and a model's output, and any of them may have
written its files. So each claim is recomputed: from the files themselves, from the base branch on
the remote, and from the counts.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt import Search
from pytest_skillopt.errors import UserError
from pytest_skillopt.plugins import hooks, merged
from pytest_skillopt.plugins.propose.base import MAX_SKILL
from pytest_skillopt.plugins.propose.errors import Refused
from pytest_skillopt.plugins.propose.git import mentions
from pytest_skillopt.plugins.propose.proposal import UP, improved_skills
from pytest_skillopt.run.directory import RESULT
from pytest_skillopt.run.result import Result
from pytest_skillopt.skill.find import slug, unnamed
from pytest_skillopt.skill.lint import Linter, allowed, refused, warned
from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import Trained, check_kind
from pytest_skillopt.skill.version import SKILL_FILE, Version, changes, is_outside, place_of
from pytest_skillopt.words import named, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt import SequentialGate
    from pytest_skillopt.git import Entry
    from pytest_skillopt.plugins.propose.base import Base
    from pytest_skillopt.run.result import SkillResult, TaskRow
    from pytest_skillopt.skill.lint import Finding

_MAX_ENTRIES = 200
_MAX_RESULT = 16 * 1024 * 1024
_MOST_ROLLOUTS = 1_000_000
"""Maximum rollouts of a task under one version, far above any training: limits forged counts."""
_WAY = "set it as skillopt_search on the base branch if it may judge there"
_NEVER_ALLOWED = frozenset({"frontmatter", "protected"})
"""Rules of the lint that hold for a proposal whatever the base branch allows."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Files of a proposal, with unchecked contents."""

    result: Result
    skills: Sequence[tuple[SkillResult, Version]] = field(repr=False)
    """Result of each skill, and its new version."""


@dataclass(frozen=True, slots=True)
class CheckedSkill:
    """Skill of a proposal that passed every check."""

    name: str
    """Name on the base branch, in lower-case letters, digits and hyphens."""
    path: str
    rows: Sequence[TaskRow] = field(repr=False)
    """The tasks that were decided by, each with counts of both versions."""
    before: Version = field(repr=False)
    after: Version = field(repr=False)
    unchecked: SkillResult = field(repr=False)
    """Statements of the training about it."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Paths of its files on the base branch, without links, by their names."""
    rule: str = ""
    """Search of the base branch whose own rule judged it; empty for the usual rule."""
    warnings: tuple[Finding, ...] = ()
    """Warnings of the lint about the added text."""

    @property
    def branch(self) -> str:
        """Name of its branch below ``skillopt/``: another for each path, the same every night."""
        return f"{self.name}-{hashlib.sha256(self.path.encode()).hexdigest()[:8]}"

    def place(self, name: str) -> str:
        """Return the path of one of its files on the base branch."""
        return self.places.get(name) or place_of(self.path, name)

    @property
    def changed(self) -> list[str]:
        """Names of its files that differ from the base branch."""
        return [*changes(self.before, self.after)]


def load(directory: Path) -> Proposal:
    """Read a proposal and check its form.

    Raises:
        Refused: a file is missing, unexpected, too large or not regular, or the result is invalid
            or contradicts itself.
    """
    found = _listed(directory)
    if RESULT not in found:
        raise Refused(f"{directory} has no {RESULT}")
    try:
        result = Result.load(_read(directory / RESULT, _MAX_RESULT))
    except ValueError as error:
        raise Refused(str(error)) from None
    rows = improved_skills(result)
    if len({row.path for row in rows.values()}) != len(rows) or not rows:
        raise Refused(f"{RESULT} lists a skill twice, or no improved skill")
    must = {RESULT, *(f"{name}/{SKILL_FILE}" for name in rows)}
    check_consistent(result, rows.values())
    unexpected = {name for name in found - must if name.partition("/")[0] not in rows}
    if odd := unexpected | (must - found):
        raise Refused(f"the proposal has unexpected or missing files: {named(sorted(odd), 5)}")
    texts: dict[str, dict[str, Text]] = {name: {} for name in rows}
    for path in sorted(found - {RESULT}):
        name, _, file = path.partition("/")
        texts[name][file.replace(UP, "../")] = Text(_read(directory / path, MAX_SKILL))
    return Proposal(result, [(row, Version(texts[name])) for name, row in rows.items()])


def check_consistent(result: Result, rows: Iterable[SkillResult]) -> None:
    """Refuse a result that contradicts itself; it was not written by a training.

    Raises:
        Refused: it says something else of the run, or of one of its accepted skills ``rows``.
    """
    ended = result.status in ("accepted", "interrupted", "unmeasured")
    if result.mode != "train" or not ended:
        raise Refused(
            f"{RESULT} contradicts itself: a skill was accepted in a run whose mode is "
            f"{result.mode} and whose status is {result.status}"
        )
    for row in rows:
        decision = (row.verdict or {}).get("decision", "accepted")
        if decision != "accepted":
            other = f"the verdict about it is {str(decision)[:40]}"
        elif any(arm.n > _MOST_ROLLOUTS for t in row.tasks for arm in (t.before, t.after) if arm):
            other = f"a task has more than {_MOST_ROLLOUTS:,} rollouts"
        else:
            continue
        raise Refused(f"{RESULT} contradicts itself: {row.path} was accepted, and {other}")


def validate(proposal: Proposal, base: Base) -> list[CheckedSkill]:
    """Check every skill of a proposal against the base branch.

    Raises:
        Refused: a skill is invalid; the message names it. One invalid skill refuses all.
    """
    return [_check(*found, base) for found in proposal.skills]


def _check(row: SkillResult, after: Version, base: Base) -> CheckedSkill:
    path = base.git.prefix + row.path
    try:
        entry = base_entry(path, base)
        search, rule = own_rule(row, base.settings.search, _WAY)
        rows = check_evidence(row, rule)
        places = {name: _place(path, name, base) for name in after.files}
        before = Version({SKILL_FILE: Text(base.read(entry)), **_base_files(places, base)})
        if after.digest != row.after:
            raise Refused("the new files are not the version that was measured")
        started = before.digest
        crlf = _with_ends(before, b"\n", b"\r\n")
        if crlf.digest in (row.before, row.after):  # a clone with core.autocrlf, as on Windows
            started = crlf.digest
            after = _with_ends(after, b"\r\n", b"\n")
        warnings: tuple[Finding, ...] = ()
        if before != after:
            if started != row.before:
                raise Refused(
                    "the base branch has another version than the one that the training started "
                    f"from ({row.before[:12]}): commit and push the skill first if it had local "
                    "changes, or train again on the base branch"
                )
            if rule.margin and after.size >= before.size:
                raise Refused("the new skill is not shorter")
            folder = posixpath.dirname(path) or "."
            beside = {posixpath.relpath(name, folder) for name in base.tree.files}
            linter = Linter(
                allow=allowed(base.settings.lint_allow) - _NEVER_ALLOWED,
                max_tokens=base.settings.max_skill_tokens,
                # A text that occurs anywhere on the base branch is taken for the user's own.
                known=lambda text: mentions(base.git, base.commit, text),
                present=beside,
                description=base.settings.train_description,
            )
            warnings = check_text(before, after, linter)
    except UserError as error:
        raise Refused(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path}: one of its files is not UTF-8") from None
    name = slug(before.main.name or unnamed(Path(row.path)))
    return CheckedSkill(name, path, rows, before, after, row, places, search, warnings)


def _with_ends(version: Version, old: bytes, new: bytes) -> Version:
    return Version({name: Text(text.data.replace(old, new)) for name, text in version.items()})


def base_entry(path: str, base: Base) -> Entry:
    """Return the entry of a skill; Refused, or GitError, if no proposal may change it."""
    parts = path.split("/")
    plain = path.isprintable() and not set(path) & set('\\"')
    if not plain or not all(parts) or {".", "..", ".git"} & {part.lower() for part in parts}:
        raise Refused("not a plain path under the top of the repository")
    entry = base.tree.files.get(path)
    if entry is None:
        base.tree.real(path)  # raises GitError if it lies in a submodule
        raise Refused(
            "the base branch has no such file: push it, or, if it was renamed or deleted since, "
            "train again there"
        )
    if path not in base.allowed:
        known = ", ".join(sorted(base.allowed)) or "none"
        raise Refused(
            f"not one of the skill files that proposals may change ({known}); add it to the "
            "setting skillopt_propose_skills on the base branch"
        )
    if entry.is_link:
        raise Refused(
            "a link on the base branch: train the file that it points to (skillopt_skill)"
        )
    if not entry.is_file:
        raise Refused("not a regular file on the base branch")
    return entry


def _place(path: str, name: str, base: Base) -> str:
    """Return the path of a trained file, which a link of the base branch may have elsewhere."""
    place = base.tree.place(place_of(path, name))
    try:
        Trained.of(base.settings).check(name)
        check_kind(place)
    except SkillError as error:
        raise Refused(f"{error} on the base branch") from None
    if not place.startswith(base.git.prefix):
        raise Refused(f"{name}: a link on the base branch that leaves the project")
    return place


def _base_files(places: Mapping[str, str], base: Base) -> dict[str, Text]:
    """Read the files beside the skill from the base branch, except new ones."""
    found = {}
    for name, place in places.items():
        entry = base.tree.files.get(place)
        if entry is None and is_outside(name):
            raise Refused(f"{name}: the base branch has no such file")
        if entry is not None:
            if not entry.is_file:
                raise Refused(f"{name}: not a regular file on the base branch")
            found[name] = Text(base.read(entry))
    return found


def own_rule(skill: SkillResult, search: str, way: str) -> tuple[str, type[SequentialGate]]:
    """Return the rule that judges a skill, and the search that brings it; "" for the usual rule.

    Args:
        skill: the result, which only tells by which rule it was accepted.
        search: trusted value of ``skillopt_search``, whose rule may judge.
        way: what to do if its rule may not, for the error.

    Raises:
        Refused: another rule accepted it.
    """
    gate = (skill.verdict or {}).get("gate")
    usual = Search().rule
    for name, make in merged(hooks().pytest_skillopt_searches()).items():
        rule = make().rule
        if rule is usual or rule.name != gate:
            continue
        if name != search:
            raise Refused(f"the rule of the search {name} accepted it: {way}")
        return name, rule
    return "", usual


def check_evidence(skill: SkillResult, rule: type[SequentialGate]) -> list[TaskRow]:
    """Recompute the pass rates on train and val from the counts; return the tasks that count.

    Raises:
        Refused: they do not show what the rule claims.
    """
    known = {row.id for row in skill.tasks}
    listed = (skill.verdict or {}).get("tasks")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    left_out = {str(row.get("task")) for row in rows if row.get("left_out") is True}
    counted = [
        row
        for row in skill.tasks
        if row.split != "test" and row.after and not row.skipped
        # Nothing but infrastructure errors under both versions: no decision includes it.
        if row.id not in left_out or row.before.n or row.after.n
    ]
    pass_rates(counted)
    if lost := [name for row in rows if (name := str(row.get("task"))) not in known]:
        raise Refused(f"the evidence lacks {lost[0][:200]}, of which the verdict tells")
    suite = skill.suite.after if skill.suite else None
    if suite and suite.tasks != len(counted):
        raise Refused(f"the evidence has {len(counted)} of the {suite.tasks} tasks of the suite")
    found = [(r.after.passed, r.after.n, r.before.passed, r.before.n) for r in counted if r.after]
    if doubt := rule.recheck(found):
        raise Refused(doubt)
    for wanted, words in ((True, "should"), (False, "should not")):
        side = [row for row in counted if row.trigger is wanted]
        before, after = pass_rates(side) if side else (0, 0)
        if after < before:
            raise Refused(
                f"the agent loads the skill correctly less often when it {words}: "
                f"{percent(float(before))} before, {percent(float(after))} after"
            )
    return counted


def pass_rates(rows: Sequence[TaskRow]) -> tuple[Fraction, Fraction]:
    """Compute the exact pass rates of both versions: means over the same tasks, in [0, 1].

    Raises:
        Refused: there is no task, a task twice, a task without a sample of both versions, or more
            passes than samples.
    """
    if not rows:
        raise Refused("the evidence has no task")
    seen: set[str] = set()
    rates = {"before": Fraction(), "after": Fraction()}
    for row in rows:
        if row.id in seen:
            raise Refused(f"the evidence lists {row.id} twice")
        seen.add(row.id)
        if any(not 0 <= arm.passed <= arm.n for arm in (row.none, row.before, row.after) if arm):
            raise Refused(f"the evidence of {row.id} counts more passes than samples")
        for side, arm in (("before", row.before), ("after", row.after)):
            if arm is None or arm.n < 1:
                raise Refused(f"the evidence has no sample of {row.id} {side} the change")
            rates[side] += Fraction(arm.passed, arm.n) / len(rows)
    return rates["before"], rates["after"]


def check_text(old: Version, new: Version, linter: Linter) -> tuple[Finding, ...]:
    """Check the version to write; refuse errors of the lint and return its warnings.

    Raises:
        Refused: an error of the lint.
        SkillError: a file is not a text.
    """
    for text in new.values():
        Text.from_bytes(text.data)
    found = linter.check(old, new)
    if bad := refused(found):
        raise Refused(f"lint, {bad[0].rule}: {bad[0]}")
    return tuple(warned(found))


def _listed(directory: Path) -> set[str]:
    """List the files of a proposal by relative path, without opening any."""
    if directory.is_symlink() or not directory.is_dir():
        raise Refused(f"{directory} is not a directory")
    found = list(islice(directory.rglob("*"), _MAX_ENTRIES + 1))
    if len(found) > _MAX_ENTRIES:
        raise Refused(f"{directory} has more files than a proposal can have")
    if link := next(filter(Path.is_symlink, found), None):
        raise Refused(f"{link} is a link")
    return {path.relative_to(directory).as_posix() for path in found if not path.is_dir()}


def _read(path: Path, limit: int) -> bytes:
    """Read a file of a proposal; Refused if it is not regular, too large or unreadable."""
    try:
        return read_bounded(path, limit)
    except (OSError, SkillError) as error:
        raise Refused(str(error)) from None
