"""One case of a file."""

from __future__ import annotations

from typing import Any


class Case(dict[str, Any]):
    """One case: its columns as attributes and as items; one of promptfoo has a ``skill``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"the case has no {name!r}; it has {known}") from None
