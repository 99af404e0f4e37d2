"""Prompts of the desk for its agent. The procedure stands in the skill, not here."""

from __future__ import annotations


def ask_for(document: str, *fields: str) -> str:
    """The request for some fields of a document."""
    names = " and ".join(f"`{field}`" for field in fields)
    return f"Extract {names} from this document as JSON.\n\n{document}"
