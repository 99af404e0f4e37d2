"""The texts with which the optimizer is asked: our templates, or a user's in their place."""

from __future__ import annotations

import string
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = (
    "reflect_failures",
    "reflect_successes",
    "reflect_lapses",
    "reflect_rewrite",
    "merge",
    "merge_rewrites",
    "rank",
    "budget",
    "rewrite",
    "generalise",
    "generalise_rewrite",
    "slow_update",
    "meta",
    "appendix",
    "answer_edits",
)


class PromptError(ValueError):
    """A user's template cannot be used; the message names the file and what to change."""


class Prompts:
    """Looks a template up: the hook's answer, else the user's folder, else ours."""

    def __init__(
        self,
        folder: str = "",
        override: Callable[[str], str | None] | None = None,
        *,
        root: Path | None = None,
    ) -> None:
        """Args:
        folder: a folder with ``<name>.md`` for each template that is to be replaced.
        override: returns a template for a name, or None.
        root: what a relative ``folder`` is relative to.

        Raises:
            PromptError: no such folder, or a file in it that replaces nothing.
        """
        self._folder = (root or Path()) / folder if folder else None
        self._override = override
        if self._folder is not None:
            _check_folder(self._folder)

    def render(self, name: str, **values: object) -> str:
        """The text of a template with its ``$placeholders`` filled in.

        Raises:
            PromptError: a placeholder that this template does not have.
        """
        text, where = self._find(name)
        try:
            return string.Template(text).substitute({k: str(v) for k, v in values.items()}).strip()
        except (KeyError, ValueError) as error:
            known = ", ".join(f"${key}" for key in sorted(values)) or "none"
            raise PromptError(
                f"{where}: {error} cannot be filled in; the placeholders here are: {known} "
                "(write $$ for a dollar sign)"
            ) from None

    def _find(self, name: str) -> tuple[str, str]:
        own = self._override(name) if self._override else None
        if own is not None:
            return own, f"pytest_skillopt_prompt({name!r})"
        if self._folder is not None:
            path = self._folder / f"{name}.md"
            if path.is_file():
                return path.read_text(encoding="utf-8"), str(path)
        built_in = resources.files(__package__) / "prompts" / f"{name}.md"
        return built_in.read_text(encoding="utf-8"), f"{name}.md"


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise PromptError(f"skillopt_prompts: {folder} is no folder")
    strangers = sorted(p.name for p in folder.glob("*.md") if p.stem not in NAMES)
    if strangers:
        raise PromptError(
            f"skillopt_prompts: {folder / strangers[0]} replaces nothing; "
            f"the templates are {', '.join(NAMES)}"
        )
