"""Train a small real model, or replay it; off by default, costs hours of one processor.

    pip install -e '.[real-model]'
    python benchmarks/real_model.py                                 the table of what was measured
    python benchmarks/real_model.py --model FILE.gguf --measure     measure what is not there yet
    python benchmarks/real_model.py --model FILE.gguf --train tickets --rollouts 300
    python benchmarks/real_model.py --model FILE.gguf --train tickets --optimizer itself
    python benchmarks/real_model.py --base-url http://localhost:11434/v1 --name qwen3 --train forms

The suites and the lines that an optimizer may offer are in ``real/``. ``data/real_model.json``
holds the pass rates of Qwen2.5-Coder-0.5B-Instruct (Q8_0, sha256 ``1d961463...``) on both under 51
sets of lines: ``learning.py --worlds tickets,forms`` trains on it in seconds, and ``recorded.py
--real`` lets every gate decide about its lines. A training of the model itself takes 35 minutes on
two cores.

llama.cpp's server tells the probability of each token at temperature 0.7; an answer that is checked
to the letter passes with their product. As a check two sets were sampled, 20 times a task: 82 and
100 passes; 84 and 97 were computed. A set that was not measured has the mean rates of its nearest.

``tickets`` (sort a ticket to one of four invented teams) starts at 0, and two lines are both needed
(0.25 to 0.44; each of 15 single lines 0). ``forms`` (answers that have a form) starts at 0.42.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real.measure import DATA, Lines, measure, read
from real.offers import offering
from real.pool import POOL
from real.server import serving
from real.tasks import SUITES
from real.training import train

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLED: dict[str, tuple[Lines, ...]] = {
    "tickets": ((2, 0), (18, 2, 1)),
    "forms": ((), (6,)),
}
"""Sets that are sampled besides, as a check of the computed rates."""


def sets() -> Iterator[tuple[str, Lines, bool]]:
    """Yield the sets that are measured, the most important first."""
    for name, chosen in SAMPLED.items():
        for lines in chosen:
            yield name, lines, True
    for line in range(20):
        yield from ((name, (line,), False) for name in SUITES)
    for form in (0, 1):
        for teams in (2, 3):
            yield from (("tickets", pair, False) for pair in ((form, teams), (teams, form)))
    for line in range(20):
        if line not in (0, 2):
            yield "tickets", (2, 0, line), False
    for pair in itertools.combinations((0, 3, 6, 8), 2):
        yield "forms", pair, False


def print_table() -> None:
    """Every measured set with its pass rate, the best first."""
    data = read()
    for name in SUITES:
        rows = data["suites"][name]["sets"]
        print(f"\n{name}: {len(rows)} sets of lines")
        for row in sorted(rows, key=lambda row: -statistics.fmean(row["rates"])):
            sampled = ""
            if "passed" in row:
                share = statistics.fmean(row["passed"]) / row["samples"]
                sampled = f" (sampled {share:.3f})"
            lines = [POOL[name][line] for line in row["lines"]] or ["no line"]
            print(f"{statistics.fmean(row['rates']):.3f}{sampled} {' / '.join(lines)}")


def print_training(result: dict[str, Any]) -> None:
    for skill in result["skills"]:
        print(f"{skill['status']}: {skill['reason']}")
        for name in ("suite", "val", "test"):
            print(f"{name}: {skill[name]}")
        print(skill["patch"])
    print(f"{result['rollouts']} rollouts, {result['seconds']:.0f} s, {result['usage']}")


@contextlib.contextmanager
def optimizer(kind: str, suite: str, seed: int, itself: str) -> Iterator[str]:
    """Yield the optimizer's name: the pool's lines, or the model that is trained."""
    if kind == "itself":
        yield itself
        return
    with offering(suite, seed) as url:
        yield f"openai:pool@{url}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file, served by llama.cpp here")
    parser.add_argument("--base-url", help="a server that speaks Chat Completions, with /v1")
    parser.add_argument("--name", default="local", help="the model's name on that server")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA, help="where the measurements are kept")
    parser.add_argument("--train", choices=list(SUITES))
    parser.add_argument("--optimizer", choices=("pool", "itself"), default="pool")
    parser.add_argument("--rollouts", type=int, default=300, help="the cap of a training")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="an empty folder for the training")
    args = parser.parse_args()
    if not (args.model or args.base_url):
        print_table()
        return
    with serving(args.model) if args.model else contextlib.nullcontext(args.base_url) as url:
        if args.measure:
            if not args.model:
                parser.error("--measure reads the probabilities of tokens, which needs --model")
            measure(url, args.model, args.data, sets())
        if args.train:
            base = url if args.base_url else f"{url}/v1"
            target = f"openai:{args.name}@{base}"
            with (
                tempfile.TemporaryDirectory() as folder,
                optimizer(args.optimizer, args.train, args.seed, target) as proposes,
            ):
                print_training(
                    train(
                        args.train, args.keep or Path(folder), target, proposes,
                        args.rollouts, args.workers, args.seed,
                    )
                )  # fmt: skip


if __name__ == "__main__":
    main()
