"""ALFWorld (Shridhar et al. 2021): household tasks in a text world, at most 50 actions.

Scored by the simulator: won or not. The games need it (``pip install alfworld``, then
``alfworld-download``, ``ALFWORLD_DATA`` set); those of the sample are played by ``text_room.py``.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from published import data_of, tasks
from text_room import Room

DATA = data_of("alfworld")


@pytest.fixture
def world(case: Any) -> Any:
    """Open the game; its path is relative to the sample, or to ``$ALFWORLD_DATA``."""
    path = case["gamefile"]
    if path.endswith(".json"):
        return Room(DATA / path)
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    asked = textworld.EnvInfos(won=True, admissible_commands=True)
    file = Path(os.environ["ALFWORLD_DATA"], path).expanduser()
    return textworld.start(str(file), asked, wrappers=[AlfredDemangler(shuffle=False)])


@pytest.mark.parametrize("case", tasks(DATA))
def test_alfworld(world: Any, skill_agent: Any) -> None:
    state = world.reset()
    for _ in range(50):
        actions = ", ".join(state.admissible_commands)
        prompt = f"{state.feedback}\n\nPossible actions: {actions}\nReply <action>...</action>."
        action = re.search(r"<action>(.*?)</action>", skill_agent(prompt), re.DOTALL)
        state, _score, done = world.step(action[1].strip().lower() if action else "look")
        if done:
            break
    assert state.won, "the task is not done after the last action"
