"""Runs that need not be made again: what they said, and what they did to their workspace.

A run is kept where the replies of ``skill_agent`` are kept, under everything that went into it.
Errors of the infrastructure are never kept.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.harness.workspace import fingerprint, packed_changes, replay
from pytest_skillopt.model.types import CacheMiss, Completion

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from pytest_skillopt.harness.workspace import Snapshot, Workspace
    from pytest_skillopt.model.cache import Replies

REVISION = 1
"""Of what is kept, and of what an adapter makes of an agent's events."""


def key_of(parts: Sequence[Any], laid: Workspace, sample: str, asked: Counter[str]) -> str:
    """The key of a run; the same task asked twice in a rollout is two draws."""
    text = json.dumps([REVISION, *parts, fingerprint(laid.before), sample], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    asked[digest] += 1
    again = f"#{asked[digest]}" if asked[digest] > 1 else ""
    return "run-" + hashlib.sha256(f"{digest}{again}".encode()).hexdigest()


def find(replies: Replies, key: str) -> dict[str, Any] | None:
    """What was kept, or None."""
    found = replies.find(key)
    if found is None:
        return None
    try:
        data = json.loads(found.text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and {"run", "changes"} <= data.keys() else None


def refuse_if_read_only(replies: Replies, account: tuple[str, str, str], sample: str) -> None:
    """Raises:
    CacheMiss: nothing may leave the machine.
    """
    if replies.mode == "ro":
        raise CacheMiss(
            f"a run of {account[2]} (sample {sample}) is not in {replies.place}, and "
            "--skillopt-cache=ro lets nothing leave the machine; record it with "
            "--skillopt-cache=rw"
        )


def keep(replies: Replies, key: str, run: dict[str, Any], laid: Workspace, after: Snapshot) -> None:
    """Keep a run, unless its workspace has changed by more than can be kept."""
    packed = packed_changes(laid.before, after)
    if packed is not None:
        replies.keep(key, Completion(json.dumps({"run": run, "changes": packed})))


def restore(laid: Workspace, data: dict[str, Any]) -> None:
    """Do to the workspace what the run did."""
    replay(laid.root, data["changes"])
