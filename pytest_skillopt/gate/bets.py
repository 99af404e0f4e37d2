"""Bets on samples: evidence that a document changes what passes, which any number of looks keeps.

Before a sample, a model says how likely a pass is under each document that could be drawn for it,
and the document is drawn by known probabilities. If no edit does anything, the outcome does not
depend on the draw, so the ratio

    r = P(outcome | document drawn) / mean over the documents of P(outcome | document)

has mean 1: sum over documents d of P(d) P(o | d) / mean = 1 for each outcome o. A gambler who
stakes the share f of the wealth multiplies it by ``1 + f (r - 1)``; the wealth starts at 1 and has
mean 1 after any number of bets (a test martingale). Nothing is assumed of the tasks, of the order
and of the stopping, and the model may be wrong: then the bets are bad and the wealth falls. A
quarter of the stake is kept; four gamblers share the rest, with ``f`` of 0, 1/4, 1/2 and 1. Before
each bet they put a twentieth of their wealth together and divide it evenly ("fixed share"; Herbster
and Warmuth 1998, Machine Learning 32): what was lost while the model knew little can be won later.

``E``, the wealth of all, is an e-value (Shafer 2021, "Testing by betting"; Vovk and Wang 2021,
Annals of Statistics 49): P(E >= 1 / alpha) <= alpha at any time, and ``p / E`` is a p-value for a
p-value ``p`` of later samples (Ignatiadis, Wang, Ramdas 2024, Biometrika 111).

A search bets on a document and a task only the first time that they meet. A server that repeats its
replies, or a text that moves a task by an accident of its wording, gives a dependence of outcome
and document that is real and worthless; over many documents such accidents cancel. For a fair bet
the mean is then that over the documents which are new for the task: given that a new one is drawn,
only those could have been.

Only sums, products and quotients of floats decide, so ``E`` is the same on every machine.
"""

from __future__ import annotations

import math

STAKES = (0.0, 0.25, 0.5, 1.0)
"""Share of the wealth that each gambler stakes."""
KEPT = 0.25
"""Part of the stake that is not betted, so that ``E`` never falls below it."""
SHARED = 0.05
"""Part of the gamblers' wealth that is divided evenly before each bet."""
MOST = 1e100
"""Wealth at which a gambler stops: far above what any verdict asks for, far below an overflow."""


class Bets:
    """The wealth of the gamblers."""

    def __init__(self) -> None:
        self._wealth = [1.0] * len(STAKES)

    def place(self, drawn: float, mean: float, passed: float) -> None:
        """Settle the bet on one sample.

        Args:
            drawn: probability of a pass under the document that was drawn, in (0, 1).
            mean: mean of this probability over the documents that could have been drawn, in (0, 1).
            passed: the outcome, or a score in [0, 1]: ``r`` is linear in it, so its mean stays 1.

        Raises:
            ValueError: a probability outside (0, 1).
        """
        if not (0 < drawn < 1 and 0 < mean < 1):
            raise ValueError(f"a bet needs probabilities in (0, 1), not {drawn} and {mean}")
        ratio = passed * drawn / mean + (1 - passed) * (1 - drawn) / (1 - mean)
        part = SHARED * math.fsum(self._wealth) / len(STAKES)
        for gambler, stake in enumerate(STAKES):
            wealth = (1 - SHARED) * self._wealth[gambler] + part
            self._wealth[gambler] = min(MOST, wealth * (1 + stake * (ratio - 1)))

    @property
    def e_value(self) -> float:
        """``E``: evidence against "no edit does anything", at least ``KEPT``."""
        return KEPT + (1 - KEPT) * math.fsum(self._wealth) / len(STAKES)

    @property
    def log_e(self) -> float:
        """Natural logarithm of ``E``."""
        return math.log(self.e_value)
