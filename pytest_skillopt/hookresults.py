"""Check what the hooks return: a result of another type is refused by the hook's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

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
_STAGES: _Wanted = {
    "reflect": (_listed(_PATCH), "a list of Patch"),
    "aggregate": (_PATCH, "a Patch"),
    "select": (_PATCH, "a Patch"),
    "update": (_having("version", "applied", "refused"), "an Update"),
    "lint_rules": (_listed(_rule), "a list of LintRule that refuse or warn"),
    "check_edit": (callable, "a function of an edit and the text that it adds"),
}
"""The results of the hooks of a search's stages, and their description."""
_PARTS: _Wanted = {
    "searches": (_named(callable), "a dict of functions by name, each of which makes a Search"),
    "rules": (_named(callable), "a dict of functions by name, each of which returns a gate"),
    "modes": (_listed(_having("carry_out")), "a list of Mode"),
    "runner": (_having("put", "close"), "a ConcurrentRunner"),
}
"""The same of the hooks that add a part."""
_FACTS: _Wanted = {
    "settings": (_named(_any), "a dict of settings by name"),
    "client": (_having("complete", "name", "fingerprint", "simulated"), "a Model"),
    "classify_error": (_having("kind", "message"), "an InfraError"),
    "prompt": (_text, "a text"),
    "opened": (_text, "a text"),
    "task": (_named(_any), "a dict of fields by name"),
    "report": (_reports, "a dict of texts by names of files, without folders,"),
}
"""The same of the hooks that tell or ask for something."""


def register(manager: pytest.PytestPluginManager) -> None:
    """Refuse results of a wrong type from now on, in conftest files and all plugins."""
    wrappers = _Wrappers()
    for name, wanted in (_STAGES | _PARTS | _FACTS).items():
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
