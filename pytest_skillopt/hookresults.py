"""Name the hook and its plugin where a result has a wrong type, or a plugin's code raises."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt import hookspecs
from pytest_skillopt.plugins import running
from pytest_skillopt.untrusted import logger, printable, redact

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pluggy

_LOG = logger(__name__)
Check = Callable[[object], bool]


def _having(*names: str) -> Check:
    return lambda value: all(hasattr(value, name) for name in names)


def _listed(check: Check) -> Check:
    return lambda value: isinstance(value, Sequence) and all(map(check, value))


def _named(check: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(check, value.values()))


def _text(value: object) -> bool:
    return isinstance(value, str)


def _rule(value: object) -> bool:
    return hasattr(value, "find") and getattr(value, "severity", "") in ("refuse", "warn")


def _reports(value: object) -> bool:
    if not isinstance(value, Mapping) or not _named(_text)(value):
        return False
    return all(Path(name).name == name for name in value)


def _any(value: object) -> bool:
    return True


_PATCH = _having("edits", "body")
_Wanted = dict[str, tuple[Check, str]]
_OF_STAGES: _Wanted = {
    "reflect": (_listed(_PATCH), "a list of Patch"),
    "aggregate": (_PATCH, "a Patch"),
    "select": (_PATCH, "a Patch"),
    "update": (_having("version", "applied", "refused"), "an Update"),
    "lint_rules": (_listed(_rule), "a list of LintRule that refuse or warn"),
    "check_edit": (callable, "a function of an edit and the text that it adds"),
}
"""The results of the hooks of a search's stages, and their description."""
_OF_PARTS: _Wanted = {
    "searches": (_named(callable), "a dict of functions by name, each of which makes a Search"),
    "rules": (_named(callable), "a dict of functions by name, each of which returns a gate"),
    "modes": (_listed(_having("carry_out")), "a list of Mode"),
    "runner": (_having("put", "close"), "a ConcurrentRunner"),
}
"""The same of the hooks that add a part."""
_OF_FACTS: _Wanted = {
    "settings": (_named(_any), "a dict of settings by name"),
    "client": (_having("complete", "name", "fingerprint", "simulated"), "a Model"),
    "classify_error": (_having("kind", "message"), "an InfraError"),
    "prompt": (_text, "a text"),
    "opened": (_text, "a text"),
    "task": (_named(_any), "a dict of fields by name"),
    "report": (_reports, "a dict of texts by names of files, without folders,"),
}
"""The same of the hooks that ask for something."""
_IGNORED: _Wanted = dict.fromkeys(("step", "result", "finished"), (_any, ""))
"""Hooks that are told something."""


def register(manager: pytest.PytestPluginManager) -> None:
    """Refuse results of a wrong type, and name the plugin of an exception, from now on."""
    wrappers = _Wrappers()
    for name, wanted in (_OF_STAGES | _OF_PARTS | _OF_FACTS | _IGNORED).items():
        hook = f"pytest_skillopt_{name}"
        setattr(wrappers, hook, _wrapper(manager, hook, *wanted))
    manager.register(wrappers, "skillopt-hookresults")


class _Wrappers:
    """The wrappers, by the names of their hooks."""


def _wrapper(
    manager: pytest.PytestPluginManager, name: str, check: Check, wanted: str
) -> Callable[[], Generator[None, Any, Any]]:
    hook = getattr(manager.hook, name)

    @pytest.hookimpl(wrapper=True)
    def refuse() -> Generator[None, Any, Any]:
        with naming(manager):
            found = yield
        for value in [found] if hook.spec.opts["firstresult"] else found:
            if value is not None and not check(value):
                plugins = [impl.plugin_name for impl in hook.get_hookimpls()]
                others = [plugin for plugin in plugins if not plugin.startswith("skillopt-")]
                raise pytest.UsageError(
                    f"{name} in {' or '.join(others)} returned {type(value).__name__}: "
                    f"{wanted} is expected (docs/hooks.md)"
                )
        return found

    return refuse


class PluginError(pytest.UsageError):  # type: ignore[misc]  # pytest asks for its class only
    """An exception in the code of a plugin that is not of this package; the message names both."""


@contextlib.contextmanager
def naming(manager: pytest.PytestPluginManager | None = None) -> Iterator[None]:
    """Raise an exception in the code of another plugin as one that names it.

    One that is meant for the user, or that ends a run, stays as it is. ``manager`` is by default
    that of the session that runs.
    """
    try:
        yield
    except Exception as error:
        manager = manager or running()
        ours = type(error).__module__.startswith("pytest_skillopt")
        if ours or isinstance(error, pytest.UsageError) or not (said := _blame(manager, error)):
            raise
        _show(manager, error)
        raise PluginError(redact(said)) from error


def _blame(manager: pytest.PytestPluginManager, error: Exception) -> str:
    """Name the hook and the plugin from whose code an exception came; empty if there is none."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        made = [impl for impl in _foreign(manager) if _package(impl) == _top(frame.f_globals)]
        if not made:
            continue
        # Also a function within the hook's.
        called = {one.f_code.co_qualname.partition(".")[0] for one, _ in frames}
        known = sorted({impl.function.__name__ for impl in made})
        hooks = " or ".join([name for name in known if name in called] or known)
        place = f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_name}"
        return f"{hooks} in {made[0].plugin_name}: {type(error).__name__}: {error} ({place})"
    return ""


def _foreign(manager: pytest.PytestPluginManager) -> Iterator[pluggy.HookImpl]:
    """Yield the hooks of plugins that are not of this package."""
    for name in vars(hookspecs):
        if name.startswith("pytest_skillopt_"):
            impls = getattr(manager.hook, name).get_hookimpls()
            yield from (impl for impl in impls if _package(impl) != __name__.partition(".")[0])


def _package(impl: pluggy.HookImpl) -> str:
    return _top(getattr(impl.function, "__globals__", {}))


def _top(names: Mapping[str, Any]) -> str:
    """Return the outermost package of a module."""
    return str(names.get("__name__", "")).partition(".")[0]


def _show(manager: pytest.PytestPluginManager, error: Exception) -> None:
    """Write the traceback into the log, which a command prints, and with ``-v`` to the terminal."""
    text = redact(printable("".join(traceback.format_exception(error))))
    _LOG.error("%s", text)
    terminal = manager.get_plugin("terminalreporter")
    if terminal and terminal.config.option.verbose > 0:
        terminal.write_line(text)
