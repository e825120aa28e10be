"""How many requests one endpoint bears, learned from what it refuses. Pure: the clock is an argument.

Two bounds at once, since servers limit in two ways:

- a *window* of requests in flight: a refusal takes away the slot that was refused, as far as the pace does not need
  it; after a while more slots are tried, one, two, four …;
- a *pace* in requests a second (`pace`): unbounded until the first refusal, then a little below what the endpoint is
  seen to accept. A window alone cannot hold a rate: a refusal comes back in milliseconds, its slot sends again at
  once, and most of what is sent is refused.

Refusals that do not become fewer when fewer requests are sent are not about how much is sent: after a few cuts in
vain they are taken for a background that the pace need not bow to.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from toolkit.generate.pace import Cut, Pace

_FIRST_WINDOW = 64
_RAMP_PER_S = 64.0
"""Slots that the window gains each second before the first refusal: slow replies must not make a slow start."""
_PROBE_COST = 50
"""Answers for each refusal that the search for slots may cost."""
_PROBE_S = 0.25
_LARGEST_STEP = 64
_DEAR_S = 60.0
"""How long the pace claims no slots after those in flight were found to reserve too much money."""
_SLOT_S = 0.25
_LOOK_BACK_S = 2.0
_FEWEST_SENT = 50
_LONGEST_LOOK_S = 60.0
_VAIN_CUTS = 4
_UNEXPLAINED = 10.0
"""Refusals in a row of cuts that nobody can blame on what was sent, before they are taken for a background."""
_VAIN_SHARE = 0.02
_BACKGROUND_S = 300.0
_LONGEST_PAUSE_S = 600.0


@dataclass(slots=True)
class _Slot:
    at: float
    sent: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Traffic:
    """What was sent and refused, in slots of a quarter of a second."""

    slots: deque[_Slot] = field(default_factory=deque)

    def count(self, now: float, *, sent: int = 0, refused: int = 0) -> None:
        if not self.slots or now - self.slots[-1].at >= _SLOT_S:
            self.slots.append(_Slot(now))
            while now - self.slots[0].at > _LONGEST_LOOK_S:
                self.slots.popleft()
        self.slots[-1].sent += sent
        self.slots[-1].refused += refused

    def share_refused(self, now: float) -> float | None:
        """Of the last two seconds, or of as many as hold enough requests; None where none do."""
        sent = refused = 0
        for slot in reversed(self.slots):
            if now - slot.at > _LOOK_BACK_S and sent >= _FEWEST_SENT:
                break
            sent, refused = sent + slot.sent, refused + slot.refused
        return None if sent < _FEWEST_SENT else refused / max(sent, refused)


@dataclass(slots=True)
class _Background:
    """Tells refusals that less sending does not lessen from those that it does.

    Attributes:
        share: Share of refusals that is taken for the background, 0 to 1.
        until: For how long.
    """

    share: float = 0.0
    until: float = -math.inf
    _limit_before: float = math.inf
    _sent: int = 0
    _refused: int = 0
    _unexplained: float = 0.0
    _vain_cuts: int = 0
    _first_share: float = 0.0

    def is_all(self, now: float, share: float | None) -> bool:
        """Whether a refusal says no more than that there is a background."""
        return now < self.until and (share is None or share <= self.share)

    def speaks(self) -> None:
        """The endpoint said when to come back: that is about load."""
        self._unexplained = 0.0
        self._sent = self._refused = 0

    def is_in_vain(self, now: float, cut: Cut) -> bool:
        """Take note of a cut; whether as much is refused as before, though less was sent than what was accepted."""
        explained = max(0.0, 1.0 - self._limit_before / cut.before)
        self._limit_before = cut.limit
        self._sent += cut.sent
        self._refused += cut.refused
        if self._sent < _FEWEST_SENT:
            return False
        sent, share = self._sent, self._refused / self._sent
        self._sent = self._refused = 0
        self._unexplained = max(0.0, self._unexplained + (share - explained - _VAIN_SHARE) * sent)
        self._vain_cuts = self._vain_cuts + 1 if share - explained > _VAIN_SHARE else max(0, self._vain_cuts - 1)
        if self._vain_cuts <= 1:
            self._first_share = share
        if self._unexplained < _UNEXPLAINED or self._vain_cuts < _VAIN_CUTS or share < self._first_share / 2:
            return False
        self.share, self.until = min(0.5, 1.5 * share + 0.02), now + _BACKGROUND_S
        self._unexplained, self._vain_cuts, self._limit_before = 0.0, 0, math.inf
        return True


class Limiter:
    """Bounds what is sent to one endpoint.

    Attributes:
        ceiling: Most requests in flight that the user allows.
        in_flight: Requests that were sent and have not ended.
        window: How many may be in flight now.
    """

    def __init__(self, ceiling: int, *, now: float):
        self.ceiling = ceiling
        self.in_flight = 0
        self.window = float(min(ceiling, _FIRST_WINDOW))
        self._pace = Pace(now=now)
        self._began = self._at = now
        self._unlimited = True
        self._step = 1
        self._probe_at = -math.inf
        self._dear_until = -math.inf
        self._latency_s: float | None = None
        self._traffic = _Traffic()
        self._background = _Background()

    # --- asking ---------------------------------------------------------------------------------

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may be sent: 0 is now, infinite is when one in flight has ended."""
        self._pass(now)
        by_pace = self._pace.wait_s(now)
        if self.in_flight >= int(self.window) and not self._widen(now):
            return math.inf
        return by_pace

    def paused_s(self, now: float) -> float:
        """Seconds that everything waits because the server asked for it; 0 where nothing does."""
        return self._pace.paused_s(now)

    @property
    def pace(self) -> float:
        """Requests a second that may be sent now; infinite before the first refusal."""
        return self._pace.per_s

    @property
    def pace_or_none(self) -> float | None:
        """The pace, or None where there is none."""
        return None if math.isinf(self.pace) else self.pace

    # --- telling --------------------------------------------------------------------------------

    def sent(self, now: float) -> None:
        """One request is on its way."""
        self.in_flight += 1
        self._pace.sent(now)
        self._traffic.count(now, sent=1)

    def ended(self, now: float) -> None:
        """One request has ended without a word about load: it failed, or nobody waited for it."""
        self._pass(now)
        self.in_flight -= 1

    def answered(self, now: float, *, sent_at: float) -> None:
        """One request was answered."""
        full = self.in_flight >= 0.9 * self.window
        self.ended(now)
        self._pace.answered(sent_at=sent_at)
        known = self._latency_s
        self._latency_s = now - sent_at if known is None else known + 0.05 * (now - sent_at - known)
        if full and self._unlimited:
            self.window = min(self.ceiling, self.window + 1.0)

    def refused(self, now: float, *, sent_at: float, retry_after_s: float | None = None) -> None:
        """One request was refused because of load.

        Args:
            now: This moment.
            sent_at: When it was sent: what was sent before a refusal was heard says no more than that one did.
            retry_after_s: What the server asked for; nothing is sent for so long, at most ten minutes.
        """
        self.ended(now)
        self._traffic.count(now, refused=1)
        if retry_after_s is not None:
            self.pause(now, retry_after_s)
            self._background.speaks()
        if self._background.is_all(now, self._traffic.share_refused(now)):
            return
        cut = self._pace.refused(now, sent_at=sent_at, wished=retry_after_s is not None)
        self._narrow(now, max(float(self.in_flight), self._needed(now)))
        if cut is not None and retry_after_s is None and self._background.is_in_vain(now, cut):
            self._pace.lift()
            self._unlimited = True

    def shrink(self, now: float, *, retry_after_s: float | None = None) -> None:
        """One request was refused since those in flight reserve too much money: fewer at once, after a pause."""
        self.ended(now)
        if retry_after_s is not None:
            self.pause(now, retry_after_s)
        self._dear_until = now + _DEAR_S
        self._narrow(now, 0.8 * (self.in_flight + 1))

    def pause(self, now: float, seconds: float) -> None:
        """Send nothing for some seconds."""
        self._pace.pause(now, min(seconds, _LONGEST_PAUSE_S))

    # --- the window -----------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """Let time pass: before any refusal the window grows."""
        passed = now - self._at
        if passed > 0:
            self._at = now
            if self._unlimited:
                self.window = min(self.ceiling, self.window + passed * _RAMP_PER_S)

    def _needed(self, now: float) -> float:
        """Slots that the pace needs, twice: where the pace is the limit, a narrow window would be one too many."""
        if not self._pace.is_measured or now < self._dear_until:
            return 0.0
        latency_s = now - self._began if self._latency_s is None else self._latency_s
        return min(float(self.ceiling), 2.0 * self.pace * latency_s + 2.0)

    def _widen(self, now: float) -> bool:
        """Open further slots where the pace needs them, or where it is time to try some; whether there is room now."""
        if self._unlimited or self.window >= self.ceiling:
            return False
        needed = self._needed(now)
        if needed > self.window:
            self.window = needed
            return self.in_flight < int(self.window)
        if now < self._probe_at:
            return False
        self.window = min(float(self.ceiling), self.window + self._step)
        self._step = min(_LARGEST_STEP, 2 * self._step)
        self._probe_at = now + _PROBE_S
        return True

    def _narrow(self, now: float, window: float) -> None:
        self._unlimited = False
        if window >= self.window:
            return
        self.window = max(1.0, window)
        self._step = 1
        per_s = 1.0 if math.isinf(self.pace) else self.pace
        self._probe_at = now + min(30.0, max(1.0, _PROBE_COST / per_s))
