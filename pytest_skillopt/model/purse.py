"""The purse: what a run may still spend, under all of its caps, at the prices seen so far.

Rollouts, model calls, tokens, US dollars and seconds can be capped. If ``spent_a`` of the amount
``a`` is gone and a rollout takes ``price_a`` of it, then

    min over all capped a of (cap_a - spent_a - margin_a) / price_a

further rollouts can be paid. ``affordable`` is the part of them that is not reserved. A price is
the mean of the rollouts seen, with two standard errors added: a comparison that a cap cuts off has
cost all and tells nothing. The margin is for calls in flight. Before the first rollout the prices
are assumptions (``Usual``), which size a first round and forbid none.

Two accounts are kept. *Taken* is what decisions go by: samples and calls that were answered from a
journal or a cache count like paid ones, so that a continued run decides as the first did. *Paid* is
what this session has really paid: it never exceeds a cap by more than what is in flight. What was
paid for and gave nothing, as a rollout whose worker died, is gone from the caps, too.
"""

from __future__ import annotations

import bisect
import math
import operator
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.model.types import CapReached, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.settings import Settings

FIRST_LOOK = 32
"""Rollouts that an assumed price never forbids, since they tell the price."""
FIRST_CALLS = 2
"""Optimizer calls likewise."""
_LOSS = 1.25
"""Time that a round takes over the durations of its rollouts: few run at its end."""
_LEAST = 1e-9
"""Share of a used-up cap, in dollars or seconds."""
_ROUNDING = 1e-9
_ERRORS = 2.0
"""Standard errors that a price lies above the mean."""


class Amounts(NamedTuple):
    """Consumption of a rollout, a call or a run; or caps, where zero means no cap."""

    rollouts: float = 0
    calls: float = 0
    tokens: float = 0
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0
    """Wall time."""

    @classmethod
    def caps_of(cls, settings: Settings) -> Amounts:
        return cls(*(getattr(settings, name) for name in CAPS))

    @classmethod
    def taken_by(cls, usage: Usage) -> Amounts:
        """Return the amounts of a usage, cached calls included."""
        return cls(0, usage.calls + usage.cached, usage.tokens, usage.worth)

    @classmethod
    def paid_by(cls, usage: Usage) -> Amounts:
        return cls(0, usage.calls, usage.input_tokens + usage.output_tokens, usage.cost or 0.0)

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(*map(operator.add, self, other))

    def minus(self, other: Amounts) -> Amounts:
        return Amounts(*map(operator.sub, self, other))

    def times(self, factor: float) -> Amounts:
        return Amounts(*(factor * amount for amount in self))


NO_CAPS = Amounts()
CAPS = ("max_rollouts", "max_calls", "max_tokens", "max_cost", "max_time")
"""The settings that cap ``Amounts``, in the order of its fields."""
_UNITS = ("rollouts", "model calls", "tokens", "US dollars", "seconds")


@dataclass(frozen=True, slots=True)
class Usual:
    """Prices before any is seen; an amount of zero is not known."""

    rollout: Amounts = Amounts(1, 1, 2_000, 0.0, 10.0)
    call: Amounts = Amounts(0, 1, 5_000)
    """A call of the optimizer."""
    reply: Amounts = NO_CAPS
    """Most that a rollout's call reserves for its reply; zero without ``max_output_tokens``."""
    source: str = "an assumption"


ASSUMED = Usual()
Reserve = float | Callable[[float], float]
"""Rollouts, or a function from ``Purse.total`` to them, for a part that follows the prices."""


class Purse:
    """Room that the caps leave, and what is reserved of it, for a run or the share of one skill.

    Args:
        caps: the caps; zero means no cap.
        usual: prices before the first rollout.
        at_once: returns how many rollouts run at the same time, at least 1.
        clock: returns seconds; time counts from now.
        whole: the purse that this one is a share of.
        parts: number of equal parts, of which the share is one.
    """

    def __init__(
        self,
        caps: Amounts = NO_CAPS,
        *,
        usual: Usual = ASSUMED,
        at_once: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
        whole: Purse | None = None,
        parts: float = 1,
    ) -> None:
        self.caps = caps
        self.usual = usual
        self.at_once = at_once
        self._clock = clock
        self._start = clock()
        self._whole = whole
        self._parts = parts
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._prices = _Prices()
        self._optimizer = Usage()
        self._probes = Usage()
        self._reserved: dict[str, Reserve] = {}
        self._own = math.inf
        """Samples, earlier ones included, at which a search ends by itself."""
        self._beside: dict[str, float] = {}
        """Rollouts that were reserved, by purpose, when it got this limit."""
        self._paid = Amounts()
        self.started = 0
        """Rollouts that were started in this session."""

    # Methods that count what was taken.

    @property
    def samples(self) -> int:
        """Number of distinct samples taken so far."""
        return len(self._keys)

    def count_sample(self, sample: str, used: Usage, seconds: float) -> None:
        """Count a sample, once, by its key."""
        with self._lock:
            if sample not in self._keys:
                self._keys.add(sample)
                self._prices.add(Amounts.taken_by(used), seconds)
        if self._whole is not None:
            self._whole.count_sample(sample, used, seconds)

    def count_calls(self, usage: Usage) -> None:
        """Count calls of the optimizer."""
        with self._lock:
            self._optimizer += usage
        if self._whole is not None:
            self._whole.count_calls(usage)

    def count_probes(self, usage: Usage) -> None:
        """Count the calls by which the first session has checked the models."""
        self._probes = usage

    @property
    def taken(self) -> Amounts:
        """Amounts taken so far."""
        spent = self._prices.sum.plus(Amounts.taken_by(self._optimizer + self._probes))
        return spent._replace(rollouts=self.samples, seconds=self._clock() - self._start)

    @property
    def _gone(self) -> Amounts:
        """Amounts that are gone from the caps."""
        return Amounts(*map(max, self.taken, self._paid))

    # Methods that tell what may still be taken.

    def affordable(self) -> float:
        """Return how many further rollouts can be paid after the reserves; infinity without cap."""
        return max(0.0, _least(self._bounds())[0])

    def affordable_rounds(self, size: int, most: int) -> int:
        """Return how many of ``most`` rounds of so many rollouts can be paid after the reserves.

        Under a cap it is one before the first rollout has told the price.
        """
        if self.binding and not self.samples:
            return min(1, most)
        return int(min(most, self.affordable() // size))

    def affordable_calls(self, part: float = 1.0) -> float:
        """Return how many optimizer calls can be paid after the reserves; infinity without cap.

        ``part`` is the most that all calls of the search take of what a cap leaves to it.
        """
        return max(0.0, _least(self._bounds_of_calls(part))[0])

    def total(self) -> float:
        """Return the rollouts that the whole purse pays, those taken included; infinity without."""
        return self.samples + max(0.0, _least(self._payable())[0])

    def reserve(self, purpose: str, rollouts: Reserve) -> None:
        """Reserve so many rollouts for a purpose, in place of what was reserved for it before."""
        self._reserved[purpose] = rollouts

    def reserved(self) -> dict[str, float]:
        """Return the reserved rollouts by purpose."""
        total = self.total()
        found = {p: r(total) if callable(r) else r for p, r in self._reserved.items()}
        return {purpose: rollouts for purpose, rollouts in found.items() if rollouts}

    def allow(self, samples: int) -> None:
        """Let a search take so many samples from now on, beside what is reserved already.

        What is reserved later comes out of them; what was grows only by the caps, as prices fall.
        """
        self._own = self.samples + samples
        self._beside = self.reserved()

    def release(self) -> None:
        """End the search: free all reserves and lift its own limit."""
        self._reserved.clear()
        self._own = math.inf

    def share(self, parts: float) -> Purse:
        """Return a purse with one of ``parts`` equal parts of what is left of each cap."""

        def part(cap: float, spent: float) -> float:
            if not cap:
                return cap
            left = (cap - spent) / parts
            return max(1, math.floor(left)) if isinstance(cap, int) else max(_LEAST, left)

        caps = Amounts(*map(part, self.caps, self._gone))
        given: dict[str, Any] = {"usual": self.usual, "clock": self._clock}
        return Purse(caps, at_once=lambda: self.at_once(), whole=self, parts=parts, **given)

    @property
    def price(self) -> Amounts:
        """Amounts that the next rollouts take each."""
        if seen := self._seen:
            return seen._prices.each(self.at_once())
        each = self.usual.rollout
        return each._replace(seconds=_LOSS * each.seconds / self.at_once())

    @property
    def _seen(self) -> Purse | None:
        """The purse whose rollouts tell the prices: this one, or the whole before its first."""
        return self if self.samples else self._whole and self._whole._seen

    # Descriptions.

    @property
    def binding(self) -> str:
        """The cap that allows the fewest rollouts, or the search's own limit; empty if none."""
        return _least(self._bounds())[1]

    @property
    def is_bound_by_cap(self) -> bool:
        """Whether a cap binds, not the search's own limit."""
        return self.binding in CAPS

    @property
    def is_estimate(self) -> bool:
        """Whether what it pays for follows prices, which may rise."""
        return self.binding in CAPS[1:]

    @property
    def is_guessed(self) -> bool:
        """Whether the price under the binding cap is an assumption."""
        return self._seen is None and self.is_estimate

    @property
    def is_call_guessed(self) -> bool:
        """Whether the price of an optimizer call under the cap that binds it is an assumption."""
        return not self._calls and _least(self._bounds_of_calls())[1] in ("max_tokens", "max_cost")

    def explain(self) -> str:
        """Say which cap binds, what it pays, what is reserved for what, and what is left."""
        said = self.pays()
        if said and self.samples:
            said += f"; {self.samples} were taken"
        for purpose, rollouts in self.reserved().items():
            said += f"; {rollouts:,.0f} are reserved for {purpose}" if said else ""
        left = max(0.0, self.total() - self.samples - self._reserved_sum())
        return f"{said}; {left:,.0f} are left" if said else "no cap is set"

    def pays(self) -> str:
        """Say how many rollouts the tightest cap pays, and at which price; empty without a cap."""
        number = self._tightest
        if number is None:
            return ""
        said = _setting(number, (self._whole or self).caps[number])
        if self._parts > 1:
            said = f"the skill's share of {said}"
        if number == 0:
            return f"{said} pays for {self.caps.rollouts:,.0f} rollouts"
        seen = self._seen
        price = _shown(number, self.price[number])
        source = f"as in {seen.samples} of them" if seen else self.usual.source
        return f"{said} pays for about {self.total():,.0f} rollouts, at {price} each ({source})"

    def needed_for(self, rollouts: float, calls: float = 0) -> str:
        """Write the run's tightest cap as it would have to be to pay so many rollouts here.

        ``calls`` is the number of further optimizer calls.
        """
        number = self._tightest or 0
        more = (rollouts - self.samples) * self.price[number] + self._margins[number]
        more += calls * self._price_of_call[number]
        lacking = more - list(self._rests())[number]
        whole = self._whole or self
        needed = whole.caps[number] + self._parts * lacking
        return _setting(number, math.ceil(100 * needed - _ROUNDING) / 100)

    @property
    def _tightest(self) -> int | None:
        """Number of the cap that pays the fewest rollouts; None without a cap."""
        _, name = _least(self._payable())
        return CAPS.index(name) if name else None

    def refusal(self, rollouts: float) -> str:
        """Say why so many more rollouts may not be taken; empty if they may."""
        left, name = _least(self._bounds())
        if rollouts <= left:
            return ""
        held = self._reserved_sum()
        kept = (
            f"; {held:,.0f} more are reserved for {' and '.join(self.reserved())}" if held else ""
        )
        if name == OWN_LIMIT:
            return f"the search has had its {self.samples} rollouts{kept}"
        kept += "" if self.samples or not held else f"; {self.pays()}: raise it"
        return f"skillopt_{name} leaves no more for the search after {self.samples} rollouts{kept}"

    def refusal_of_calls(self, calls: int) -> str:
        """Say why so many more optimizer calls may not be made; empty if they may."""
        left, name = _least(self._bounds_of_calls())
        if calls <= left:
            return ""
        return f"skillopt_{name} leaves no call of the optimizer after {self.samples} rollouts"

    # Methods that tell what this session pays.

    @property
    def rollouts_left(self) -> float:
        """Rollouts that may still be started; infinity without a cap on them."""
        return max(0, self.caps.rollouts - self.started) if self.caps.rollouts else math.inf

    def count_started(self, rollouts: int) -> None:
        """Count rollouts that are started; a negative number for those that did not run."""
        self.started += rollouts

    def count_payment(self, usage: Usage) -> None:
        """Count a usage of this session."""
        with self._lock:
            self._paid = self._paid.plus(Amounts.paid_by(usage))

    def check_time(self) -> None:
        """Raise CapReached if the time is over."""
        limit = self.caps.seconds
        if limit and self._clock() - self._start >= limit:
            raise CapReached(f"skillopt_max_time: {limit:g} s are over")

    def check(self) -> None:
        """Raise CapReached if a cap is used up."""
        self.check_time()
        for name, cap, paid, unit in zip(CAPS[1:4], *self._amounts_of_calls(), strict=True):
            if cap and paid >= cap - _ROUNDING:
                raise CapReached(_reached(name, cap, paid, unit))

    def has_room(self, call: Amounts, in_flight: Amounts) -> bool:
        """Return whether a call fits beside those in flight; False if it has to wait for them.

        Raises:
            CapReached: it would exceed a cap without them, too. A cap is not declared reached on
                reserves that other calls may not use.
        """
        room = True
        rows = zip(*self._amounts_of_calls(), call[1:4], in_flight[1:4], CAPS[1:4], strict=True)
        for cap, paid, unit, mine, others, name in rows:
            if not cap or paid + others + mine <= cap + _ROUNDING:
                continue
            if not others or paid + mine > cap + _ROUNDING:
                raise CapReached(_reached(name, cap, paid, unit) + _too_small(cap - paid, mine))
            room = False
        return room

    def rest(self) -> Amounts:
        """Return what is left of the caps on calls, tokens and money."""
        return self.caps.minus(self._paid)

    def _amounts_of_calls(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[str, ...]]:
        return self.caps[1:4], self._paid[1:4], _UNITS[1:4]

    # Parts of the answers.

    def _reserved_sum(self) -> float:
        return sum(self.reserved().values())

    @property
    def _calls(self) -> int:
        """Number of optimizer calls so far."""
        return self._optimizer.calls + self._optimizer.cached

    @property
    def _price_of_call(self) -> Amounts:
        if not self._calls:
            return self.usual.call
        return Amounts.taken_by(self._optimizer).times(1 / self._calls)

    @property
    def _margins(self) -> Amounts:
        """Amounts that have to be left for the last rollout."""
        return self._prices.most.plus(self.usual.reply)

    def _rests(self) -> Iterator[float]:
        """Yield what is left of each amount; infinity without a cap on it."""
        whole = self._whole._rests() if self._whole else (math.inf,) * len(self.caps)
        for cap, gone, left in zip(self.caps, self._gone, whole, strict=True):
            yield min(left, cap - gone) if cap else left

    def _payable(self) -> Iterator[tuple[float, str]]:
        """Yield the rollouts that each cap pays, reserved ones included, and its name."""
        price = self.price
        margins = self._margins
        for number, left in enumerate(self._rests()):
            if left == math.inf:
                continue
            if price[number]:
                rollouts = (left - margins[number]) / price[number]
                yield math.floor(rollouts + _ROUNDING), CAPS[number]
            elif left <= 0:
                yield 0.0, CAPS[number]

    def _bounds(self) -> Iterator[tuple[float, str]]:
        """Yield the rollouts that each bound leaves, and its name."""
        held = self._reserved_sum()
        if self._own < math.inf:
            later = 0.0
            for purpose, rollouts in self.reserved().items():
                before = self._beside.get(purpose)
                later += rollouts if before is None else min(0.0, rollouts - before)
            yield self._own - self.samples - later, OWN_LIMIT
        for left, name in self._payable():
            unsure = self._seen is None and name != CAPS[0] and left > 0
            least = FIRST_LOOK if unsure else -math.inf
            yield max(left - held, least), name

    def _bounds_of_calls(self, part: float = 1.0) -> Iterator[tuple[float, str]]:
        """Yield the optimizer calls that each cap leaves after the reserves, and its name."""
        price = self._price_of_call
        held = self.price.times(self._reserved_sum())
        taken = Amounts.taken_by(self._optimizer)
        for number, left in enumerate(self._rests()):
            name = CAPS[number]
            if left <= 0:
                yield 0.0, name
            elif left < math.inf and price[number]:
                free = left - held[number]
                of_search = free + taken[number] + self._prices.sum[number]
                most = min(free, part * of_search - taken[number])
                calls = math.floor(most / price[number] + _ROUNDING)
                if not self._calls and name != "max_calls" and free >= 0:
                    calls = max(calls, FIRST_CALLS)
                yield calls, name


OWN_LIMIT = "the search's own limit"


def _least(bounds: Iterator[tuple[float, str]]) -> tuple[float, str]:
    """Return the bound that allows the least, and its name; infinity and "" without any."""
    return min(bounds, default=(math.inf, ""))


class _Prices:
    """The amounts that rollouts took."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = Amounts()
        self.most = Amounts()
        """Largest of each amount."""
        self._mean = Amounts()
        self._squares = Amounts()
        """Sums of squared distances from the mean (Welford's algorithm)."""
        self._durations: list[float] = []
        """Wall seconds, in ascending order."""

    def add(self, used: Amounts, seconds: float) -> None:
        self.count += 1
        self.sum = self.sum.plus(used)
        self.most = Amounts(*map(max, self.most, used))
        before = used.minus(self._mean)
        self._mean = self._mean.plus(before.times(1 / self.count))
        after = used.minus(self._mean)
        self._squares = self._squares.plus(Amounts(*map(operator.mul, before, after)))
        bisect.insort(self._durations, seconds)

    def each(self, at_once: int) -> Amounts:
        """Return the price of a rollout, with so many at once."""
        errors = (math.sqrt(max(0.0, squares)) / self.count for squares in self._squares)
        prices = self._mean.plus(Amounts(*errors).times(_ERRORS))
        return prices._replace(rollouts=1, seconds=self._seconds(at_once))

    def _seconds(self, at_once: int) -> float:
        """Estimate the seconds of a rollout at this pace, all workers busy.

        The time of the optimizer counts as spent only; the first rollout of each worker starts the
        worker up, so the slowest ones do not count.
        """
        usual = self._durations[:-at_once] or self._durations
        return _LOSS * sum(usual) / len(usual) / at_once


def _reached(name: str, cap: float, paid: float, unit: str) -> str:
    return f"skillopt_{name}: the cap of {cap:g} {unit} is reached ({paid:g} used)"


def _too_small(left: float, mine: float) -> str:
    """Say what a call would need if something is left of a cap, and the ways out."""
    if left <= _ROUNDING:
        return ""
    return f": the next call may use up to {mine:g}; raise the cap, or set max_output_tokens lower"


def _setting(number: int, amount: float) -> str:
    """Write a cap as in the configuration."""
    decimals = 2 if CAPS[number] == "max_cost" else 0
    return f"skillopt_{CAPS[number]} = {amount:.{decimals}f}"


def _shown(number: int, amount: float) -> str:
    """Write an amount with its unit."""
    if CAPS[number] == "max_cost":
        return f"${amount:.2g}" if amount < 0.1 else f"${amount:,.2f}"
    written = f"{amount:,.3g}" if amount < 100 else f"{amount:,.0f}"
    unit = _UNITS[number]
    if written == "1":
        unit = unit.removesuffix("s")
    return f"{written} {unit}"
