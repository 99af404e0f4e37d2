"""The files beside a skill's document, as a rollout finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.rollouts.conftest import Drive

EXECUTORS = [("-p", "no:xdist"), ("-n1",), ("-n1", "--drive-lanes=2")]


@pytest.mark.parametrize("args", EXECUTORS, ids=["here", "worker", "lanes"])
def test_a_script_can_be_run_and_a_file_name_need_not_be_utf8(
    drive: Drive, args: tuple[str, ...]
) -> None:
    driven = drive(
        """
        import os, subprocess

        def test_total(skill):
            script = skill.path / "scripts" / "total.sh"
            assert subprocess.run([script], capture_output=True).stdout == b"42\\n"

        def test_file(skill):
            assert b"caf\\xe9.txt" in os.listdir(os.fsencode(skill.path))
        """,
        *args,
        job="jobs:job",
        jobs="""
        import os
        from rollout_driver import *

        def job(executor, tasks):
            files = {"scripts/total.sh": b"#!/bin/sh\\necho 42\\n"}
            executor.add_skill(SKILL, {**files, os.fsdecode(b"caf\\xe9.txt"): b"milk"})
            once(executor, tasks)
        """,
    )
    assert [r.outcome for r in driven.rollouts] == ["passed"] * 2, driven.rollouts
