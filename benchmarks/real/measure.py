"""Pass rates of a model on each task under a set of lines, kept as data.

llama.cpp's server tells the probability of each token after all of its sampler's cuts, so the
chance of an answer to the letter is the product along its tokens, without the noise of samples
(``rates``; below one in a thousand it counts as 0). Sets that matter are sampled besides, as a
check (``passed``).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real.pool import POOL
from real.server import post
from real.tasks import SUITES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from real.tasks import Suite, Task

DATA = Path(__file__).parent.parent / "data" / "real_model.json"
TEMPERATURE = 0.7
MAX_TOKENS = 16
SAMPLES = 20
_LEAST = 1e-3

Lines = tuple[int, ...]
"""Numbers of lines of the pool, in the order in which they are appended."""


def measure(
    url: str, model: Path | None, path: Path, sets: Iterable[tuple[str, Lines, bool]]
) -> None:
    """Measure what is not in the file yet: suite, lines, and whether samples are wanted too."""
    data = read(path)
    if model:
        data["model"] = {"name": model.name, "sha256": _hash(model), "bytes": model.stat().st_size}
    data["settings"] = {"temperature": TEMPERATURE, "max_tokens": MAX_TOKENS}
    for name, lines, sampled in sets:
        suite, rows = SUITES[name], data["suites"][name]["sets"]
        row = next((row for row in rows if row["lines"] == list(lines)), None)
        if row is None:
            row = {"lines": list(lines), "rates": _rates(url, suite, lines)}
            rows.append(row)
            rates = row["rates"]
            print(f"{name} {lines}: {sum(rates) / len(rates):.3f}", flush=True)
            _write(path, data)
        if sampled and "passed" not in row:
            row["samples"] = SAMPLES
            row["passed"] = [_passed(url, suite, lines, task) for task in suite.tasks]
            print(f"{name} {lines}: {row['passed']} of {SAMPLES} sampled", flush=True)
            _write(path, data)


def read(path: Path = DATA) -> dict[str, Any]:
    """Read what was measured so far.

    Raises:
        ValueError: the file is of other tasks or lines.
    """
    known = {
        name: {
            "start": suite.start,
            "tasks": [[task.name, task.prompt, task.answer] for task in suite.tasks],
            "pool": list(POOL[name]),
        }
        for name, suite in SUITES.items()
    }
    if not path.exists():
        return {"suites": {name: {**suite, "sets": []} for name, suite in known.items()}}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name, suite in known.items():
        if any(data["suites"][name][key] != value for key, value in suite.items()):
            raise ValueError(f"{path} is of other tasks or lines than the suite {name!r}")
    return data


def _rates(url: str, suite: Suite, lines: Lines) -> list[float]:
    system = suite.skill(tuple(POOL[suite.name][line] for line in lines))
    return [round(_rate(url, system, task), 4) for task in suite.tasks]


def _rate(url: str, system: str, task: Task) -> float:
    prompt = post(url, "/apply-template", {"messages": _messages(system, task)})["prompt"]
    tokens = _tokens(url, prompt, parse_special=True)
    answer = [*_tokens(url, task.answer), *_tokens(url, "<|im_end|>", parse_special=True)]
    chance = 1.0
    for i, token in enumerate(answer):
        body = {"prompt": tokens + answer[:i], "n_predict": 1, "n_probs": 100, "id_slot": 0,
                "post_sampling_probs": True, "temperature": TEMPERATURE}  # fmt: skip
        reply = post(url, "/completion", body)["completion_probabilities"][0]["top_probs"]
        chance *= next((top["prob"] for top in reply if top["id"] == token), 0.0)
        if chance < _LEAST:
            return 0.0
    return chance


def _tokens(url: str, text: str, *, parse_special: bool = False) -> list[int]:
    body = {"content": text, "parse_special": parse_special}
    found: list[int] = post(url, "/tokenize", body)["tokens"]
    return found


def _passed(url: str, suite: Suite, lines: Lines, task: Task) -> int:
    system = suite.skill(tuple(POOL[suite.name][line] for line in lines))
    body = {"messages": _messages(system, task), "n": SAMPLES // 2, "max_tokens": MAX_TOKENS,
            "temperature": TEMPERATURE}  # fmt: skip
    # Twice half of them: the choices of a request wait until so many slots are free at once.
    halves = [post(url, "/v1/chat/completions", body)["choices"] for _ in range(2)]
    return sum(task.passes(choice["message"]["content"]) for half in halves for choice in half)


def _messages(system: str, task: Task) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": task.prompt}]


def _hash(model: Path) -> str:
    with model.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=1)
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(path)
