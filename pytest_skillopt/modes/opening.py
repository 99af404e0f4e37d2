"""Open a run: read the skills, assign the splits, make models, journal and sampler."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.compare.modes import refuse_versions
from pytest_skillopt.edits.context import read_preferences
from pytest_skillopt.errors import UserError
from pytest_skillopt.model.cache import Replies
from pytest_skillopt.model.config import PROVIDER, check_prices, model_config, provider_of
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.remote import services
from pytest_skillopt.model.roles import MODELS, Models
from pytest_skillopt.model.types import ROLES, ModelConfigError, Usage
from pytest_skillopt.modes.forecast import usual_prices
from pytest_skillopt.modes.skills import (
    notes_on_skills,
    notes_on_tasks,
    read_versions,
    skills_of,
    split_tasks,
)
from pytest_skillopt.options import command_line
from pytest_skillopt.plugins import switched_off
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.run.directory import (
    JOURNAL,
    Home,
    RunDirectory,
    finish_writing,
)
from pytest_skillopt.run.journal import PROBE, Journal, JournalLedger, entries_of
from pytest_skillopt.run.openrun import (
    Run,
    can_continue,
    check_same_run,
    describe_run,
    earlier_usage,
    refuse_finished,
    versions_at_start,
    versions_of_packages,
)
from pytest_skillopt.run.project import CONFIG_FILES
from pytest_skillopt.search.extensions import notes_on_search
from pytest_skillopt.skill.folder import left_out
from pytest_skillopt.skill.read import skill_files
from pytest_skillopt.skill.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.rollouts.executor import WorkersExecutor
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask


@contextlib.contextmanager
def open_run(
    config: pytest.Config,
    mode: Mode,
    settings: Settings,
    executor: WorkersExecutor,
    tasks: Sequence[SkillTask],
    on_rollout: Callable[[Rollout], None],
) -> Iterator[Run]:
    """Open a run, and close it at the end whatever happens.

    All settings are checked before anything is written. The only model calls are one tiny call for
    each role, to check that its provider serves it.
    """
    root = config.rootpath
    home = Home(root / settings.dir)
    tasks, notes = split_tasks(tasks, settings, mode)
    notes += finish_writing(root, home, skills_of(tasks), Trained.of(settings))
    versions = read_versions(root, tasks, settings, mode)
    resumed = None if mode.resume is None else home.find(mode.resume, "training")
    if resumed is not None:
        refuse_finished(resumed)
    meter = Meter(settings)
    replies = Replies(settings.cache)
    models = Models(config, settings, throttle=meter, replies=replies)
    config.stash[MODELS] = models
    with contextlib.ExitStack() as stack:
        stack.callback(models.close)
        roles = wanted_roles(mode, tasks)
        used = {role: models.get(role) for role in roles}
        meter.purse.usual = usual_prices(roles, tasks, settings)
        fingerprints = {role: model.fingerprint for role, model in used.items()}
        if settings.max_cost:
            check_prices([model.config for model in used.values() if hasattr(model, "config")])
        home.keep(replies)
        executor.services, executor.on_lost = services(meter, models)
        probed = probed_roles(roles, tasks)
        more = notes_on_opening(config, mode, settings, tasks)
        directory = RunDirectory.open(resumed) if resumed else home.new_run()
        home.sweep()
        if resumed is None:
            stack.push(functools.partial(_discard_unused, directory.path))
        stack.callback(directory.close)
        journal = stack.enter_context(Journal(directory.journal))
        versions = versions_at_start(journal, directory, versions)
        description = describe_run(mode, settings, tasks, versions, fingerprints)
        check_same_run(journal, description)
        _add_skills(executor, versions, root)
        fingerprint = _fingerprint(fingerprints, settings)
        sampler = Sampler(
            executor,
            tasks,
            JournalLedger(journal),
            model=fingerprint,
            settings=settings,
            meter=meter,
        )
        sampler.decides = not mode.judges_tasks
        sampler.on_rollout = on_rollout
        sampler.on_version = directory.keep_version
        notes = [*notes, *_notes(mode, settings, versions, journal, root), *more]
        earlier = earlier_usage(journal.path) if resumed else {}
        command = command_line(config.invocation_params.args)
        packages = versions_of_packages(tasks)

        @functools.cache
        def probe() -> None:
            models.probe(probed, lambda: executor.ended)
            count_probes(journal, meter)

        if not mode.late_probe:
            probe()
        yield Run(
            mode=mode,
            settings=settings,
            root=root,
            directory=directory,
            journal=journal,
            meter=meter,
            models=models,
            sampler=sampler,
            tasks=tasks,
            versions=versions,
            command=command,
            fingerprint=fingerprint,
            probe=probe,
            notes=notes,
            used=used,
            packages=packages,
            earlier=earlier,
            unfinished=_unfinished(home, mode, directory, description),
        )


def count_probes(journal: Journal, meter: Meter) -> None:
    """Count what it took to check the models, in a continued run what its first session took."""

    def paid() -> dict[str, Any]:
        accounts = meter.accounts.items()
        return {role: asdict(usage) for (role, stage), usage in accounts if stage == PROBE}

    usages = journal.once(PROBE, paid).values()
    meter.purse.count_probes(sum((Usage(**usage) for usage in usages), Usage()))


def _add_skills(executor: WorkersExecutor, versions: Mapping[str, Version], root: Path) -> None:
    """Give the executor the files of each skill that are not trained."""
    for skill, version in versions.items():
        files = skill_files(root / skill, root)
        untrained = {name: files[name] for name in files if name not in version}
        executor.add_skill(skill, untrained)


def _fingerprint(fingerprints: Mapping[Role, str], settings: Settings) -> str:
    """Return the fingerprint of the target, together with that of a simulated user."""
    target = fingerprints.get("target") or _target_of_own_agents(settings)
    if "user" not in fingerprints:
        return target
    return hashlib.sha256(f"{target} {fingerprints['user']}".encode()).hexdigest()


def notes_on_opening(
    config: pytest.Config, mode: Mode, settings: Settings, tasks: Sequence[SkillTask]
) -> list[str]:
    """Return the notes on the tasks of a training, and those of plugins, each a line."""
    of_plugins = config.hook.pytest_skillopt_opened(config=config, tasks=tasks)
    notes = [*notes_on_tasks(tasks, settings)] if mode.name == "train" else []
    for text in filter(None, of_plugins):
        notes += text.splitlines()
    return notes


def _discard_unused(run: Path, error: type[BaseException] | None, *_: object) -> None:
    """Remove a new run if an error, such as an unusable model, has left it without any result."""
    kinds = ("rollout", "error", "reply") if error is not None else ()
    with contextlib.suppress(OSError):
        if kinds and not any(entries_of(run / JOURNAL, *kinds)):
            shutil.rmtree(run)


def refuse_early(config: pytest.Config, mode: Mode, settings: Settings) -> None:
    """Refuse wrong settings before any worker is started.

    Raises:
        pytest.UsageError: no such run to continue, no such version, no such file of preferences, or
            an optimizer that is not configured or has no key.
    """
    root = config.rootpath
    home = Home(root / settings.dir)
    if mode.name in ("compare", "try"):
        _refuse_foreign_root(config, mode)
    refuse_versions(root, home, mode)
    try:
        if mode.resume is not None:
            home.find(mode.resume, "training")
        read_preferences(settings.preferences, root)
        is_ours = provider_of(settings, "optimizer") in ("", PROVIDER) and not _has_maker(config)
        if mode.name == "train" and is_ours:
            optimizer = model_config(settings, "optimizer")
            if not optimizer.key_command:  # the command is run only if the key is needed
                optimizer.api_key()
    except UserError as error:
        raise pytest.UsageError(f"{error}{switched_off(config)}") from error


def _has_maker(config: pytest.Config) -> bool:
    """Return whether a plugin that is not of this package makes models."""
    makers = config.hook.pytest_skillopt_client.get_hookimpls()
    return any(not m.function.__module__.startswith("pytest_skillopt.") for m in makers)


def _refuse_foreign_root(config: pytest.Config, mode: Mode) -> None:
    """Refuse files outside of the project if pytest has taken them for its paths."""
    here = config.invocation_params.dir
    root = config.rootpath
    if config.inipath:
        return
    for folder in (here, *here.parents):
        if folder == root or not folder.is_relative_to(root):
            return
        for name in CONFIG_FILES:
            if (folder / name).is_file():
                raise pytest.UsageError(
                    f"{mode.flag}: files outside of the project are named, so that pytest takes "
                    f"{root} for its root directory, without your settings: add -c {folder / name}"
                )


def probed_roles(roles: Sequence[Role], tasks: Sequence[SkillTask]) -> list[Role]:
    """List the roles to probe: not those that only coding agents call, in their own protocol."""
    ours = (task for task in tasks if not task.agent and not task.proxied)
    own = any("target" in task.roles for task in ours)
    return [role for role in roles if role != "target" or own]


def wanted_roles(mode: Mode, tasks: Iterable[SkillTask]) -> list[Role]:
    wanted = {role for task in tasks for role in task.roles}
    if mode.name == "train":
        wanted.add("optimizer")
    return [role for role in ROLES if role in wanted]


def _target_of_own_agents(settings: Settings) -> str:
    """Return the fingerprint of the target that tests may call by ``rollout.target``, if any.

    It is part of a rollout's address: rollouts with another model are never reused.
    """
    with contextlib.suppress(ModelConfigError):
        return model_config(settings, "target").fingerprint
    return ""


def _notes(
    mode: Mode,
    settings: Settings,
    versions: Mapping[str, Version],
    journal: Journal,
    root: Path,
) -> Iterator[str]:
    """Yield notes that a user should read before the run begins."""
    yield from notes_on_skills(versions)
    yield from notes_on_links(versions, root)
    if mode.name == "train":
        yield from notes_on_search(settings)
    if mode.resume is not None:
        kept = len(journal.kept("rollout"))
        yield f"continued with {kept} rollouts of earlier sessions; caps count this session only"
    for number in journal.corrupt:
        yield f"{journal.path}: line {number} was corrupt and is measured again"


def notes_on_links(skills: Iterable[str], root: Path) -> Iterator[str]:
    """Name the files beside the skills that a rollout lacks."""
    for skill in skills:
        for link in left_out(Path(skill), root):
            yield f"{skill}: left out, {link}, not inside of the project: copy it there"


def _unfinished(
    home: Home, mode: Mode, directory: RunDirectory, description: dict[str, Any]
) -> str:
    if mode.name != "train" or mode.resume is not None:
        return ""
    earlier = home.unfinished(directory.name)
    return earlier if earlier and can_continue(home.runs / earlier, description) else ""
