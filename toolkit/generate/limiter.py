"""How many requests one endpoint bears, learned from what it refuses. Pure: the clock is an argument.

Two bounds at once, since servers limit in two ways:

- a *window* of requests in flight: a refusal takes away the slot that was refused, as far as the answers that do
  come do not need it; after a while more slots are tried, one, two, four …;
- a *pace* in requests a second: unbounded until the first refusal, then a little below what the endpoint is seen
  to accept, and from there slowly upwards again. A window alone cannot hold a rate: a refusal comes back in
  milliseconds, its slot sends again at once, and most of what is sent is refused.

Refusals that do not become fewer when fewer requests are sent are not about how much is sent: after a few cuts in
vain they are taken for a background that the pace need not bow to.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

_FIRST_WINDOW = 64
_RAMP_PER_S = 64.0
"""Slots that the window gains each second before the first refusal: slow replies must not make a slow start."""
_BELOW = 0.97
"""Pace after a cut, as a share of what was accepted."""
_CREEP_PER_S = 0.002
"""Growth near the limit. A refusal may cost a pause of a second: the way back up must take many."""
_FASTEST_PER_S = 0.5
_FASTEST_PER_REQUEST = 0.003
_SURE_OVER = 1.02
"""A pace that goes this far beyond the last limit unrefused has shown that limit to be gone."""
_NEAR = 0.95
_SEARCH_PER_S = 0.2
"""Growth after the first cut: what a first burst met is a poor measure of what is borne for long."""
_PROBE_COST = 50
"""Answers for each refusal that the search for slots may cost."""
_PROBE_S = 0.25
_LARGEST_STEP = 64
_SLOT_S = 0.25
_LOOK_BACK_S = 2.0
_FEWEST_SENT = 50
_TOO_FEW = 10
_LONGEST_LOOK_S = 60.0
_VAIN_CUTS = 3
_UNEXPLAINED = 6.0
"""Refusals in a row of cuts that nobody can blame on what was sent, before they are taken for a background."""
_VAIN_SHARE = 0.02
_BACKGROUND_S = 300.0
_LOWEST_PACE = 0.2
_BURST_S = 0.05
_PAUSE_COUNTS_S = 1.0
"""How much of a pause counts as time in what is accepted a second: some, for servers refill meanwhile."""
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

    def lately(self, now: float) -> tuple[float, int, int]:
        """(seconds, sent, refused) of the last two seconds, or of as many as hold enough requests."""
        began, sent, refused = now, 0, 0
        for slot in reversed(self.slots):
            enough = now - slot.at > _LOOK_BACK_S and sent >= _FEWEST_SENT
            if enough:
                break
            began, sent, refused = slot.at, sent + slot.sent, refused + slot.refused
        return max(now - began, 1.0), sent, refused


class Limiter:
    """Bounds what is sent to one endpoint.

    Attributes:
        ceiling: Most requests in flight that the user allows.
        in_flight: Requests that were sent and have not ended.
        window: How many may be in flight now.
        pace: Requests a second that may be sent now; infinite before the first refusal.
    """

    def __init__(self, ceiling: int, *, now: float):
        self.ceiling = ceiling
        self.in_flight = 0
        self.window = float(min(ceiling, _FIRST_WINDOW))
        self.pace = math.inf
        self._unlimited = True
        self._step = 1
        self._probe_at = -math.inf
        self._latency_s: float | None = None
        self._pace_limit = math.inf
        self._trusted = False
        self._growth_per_s = _CREEP_PER_S
        self._tokens = 1.0
        self._at = now
        self._cut_at = now
        self._paused_until = -math.inf
        self._clock_s = 0.0
        self._pause_counts_s = 0.0
        self._traffic = _Traffic()
        self._unexplained = 0.0
        self._vain_cuts = 0
        self._first_share = 0.0
        self._accepted_per_s = 0.0
        self._background = 0.0
        self._background_until = -math.inf

    # --- asking ---------------------------------------------------------------------------------

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may be sent: 0 is now, infinite is when one in flight has ended."""
        self._pass(now)
        if self.in_flight >= int(self.window) and not self._probe(now):
            return math.inf
        if now < self._paused_until:
            return self._paused_until - now
        if self._tokens >= 1.0 or math.isinf(self.pace):
            return 0.0
        return (1.0 - self._tokens) / self.pace

    def paused_s(self, now: float) -> float:
        """Seconds that everything waits because the server asked for it; 0 where nothing does."""
        return max(0.0, self._paused_until - now)

    @property
    def pace_or_none(self) -> float | None:
        """The pace, or None where there is none."""
        return None if math.isinf(self.pace) else self.pace

    # --- telling --------------------------------------------------------------------------------

    def sent(self, now: float) -> None:
        """One request is on its way."""
        self.in_flight += 1
        self._tokens -= 0.0 if math.isinf(self.pace) else 1.0
        self._traffic.count(self._clock_s, sent=1)

    def ended(self, now: float) -> None:
        """One request has ended without a word about load: it failed, or nobody waited for it."""
        self._pass(now)
        self.in_flight -= 1

    def answered(self, now: float, *, sent_at: float) -> None:
        """One request was answered."""
        full = self.in_flight >= 0.9 * self.window
        self.ended(now)
        known = self._latency_s
        self._latency_s = now - sent_at if known is None else known + 0.05 * (now - sent_at - known)
        if full and self._unlimited:
            self.window = min(self.ceiling, self.window + 1.0)

    def refused(self, now: float, *, sent_at: float, retry_after_s: float | None = None) -> None:
        """One request was refused because of load.

        Args:
            now: This moment.
            sent_at: When it was sent: what was sent before a cut says nothing against the pace after it.
            retry_after_s: What the server asked for; nothing is sent for so long, at most ten minutes.
        """
        self.ended(now)
        if retry_after_s is not None:
            self.pause(now, retry_after_s)
            self._unexplained = 0.0  # a server that says when to come back speaks of load
        if sent_at < self._cut_at:
            self._close_slot(now, self._accepted_per_s)
            return
        self._traffic.count(self._clock_s, refused=1)
        seconds, sent, refused = self._traffic.lately(self._clock_s)
        share = refused / max(sent, refused)
        if now < self._background_until and (sent < _FEWEST_SENT or share <= self._background):
            return
        accepted_per_s = max(0, sent - refused) / seconds
        self._close_slot(now, accepted_per_s)
        since_cut_s = now - self._cut_at
        if since_cut_s >= 1.0 and (sent >= _FEWEST_SENT or (since_cut_s >= 5.0 and share > 0.3 and sent >= _TOO_FEW)):
            self._cut(now, accepted_per_s=accepted_per_s, share=share, sent=sent)

    def shrink(self, now: float, *, retry_after_s: float | None = None) -> None:
        """One request was refused since those in flight reserve too much money: fewer at once, after a pause."""
        self.ended(now)
        if retry_after_s is not None:
            self.pause(now, retry_after_s)
        self._narrow(now, 0.8 * (self.in_flight + 1), self._accepted_per_s)

    def pause(self, now: float, seconds: float) -> None:
        """Send nothing for some seconds."""
        if now >= self._paused_until:
            self._pause_counts_s = _PAUSE_COUNTS_S
        self._paused_until = max(self._paused_until, now + min(seconds, _LONGEST_PAUSE_S))

    # --- inside ---------------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """Let time pass: tokens come in, the pace grows, and before any refusal the window does."""
        passed = now - self._at
        if passed <= 0:
            return
        running = max(0.0, min(passed, now - self._paused_until))
        counts = min(self._pause_counts_s, passed - running)
        self._pause_counts_s -= counts
        self._clock_s += running + counts
        self._at = now
        if self._unlimited:
            self.window = min(self.ceiling, self.window + passed * _RAMP_PER_S)
        if math.isinf(self.pace):
            return
        # Timers are late: what they miss must not be lost, nor be taken for a lack of things to send.
        most = max(2.0, self.pace * _BURST_S)
        idle = self._tokens + running * self.pace - most
        self._tokens = min(most, self._tokens + running * self.pace)
        if idle <= max(1.0, self.pace * _BURST_S):
            self._grow(running)

    def _probe(self, now: float) -> bool:
        """Open further slots where it is time to try some; whether it did."""
        if self._unlimited or now < self._probe_at or self.window >= self.ceiling:
            return False
        self.window = min(float(self.ceiling), self.window + self._step)
        self._step = min(_LARGEST_STEP, 2 * self._step)
        self._probe_at = now + _PROBE_S
        return True

    def _grow(self, seconds: float) -> None:
        if not self._trusted:
            growth = _SEARCH_PER_S
        elif self.pace < _NEAR * self._pace_limit:
            growth = _FASTEST_PER_S
        elif self.pace < _SURE_OVER * self._pace_limit:
            growth = _CREEP_PER_S
        else:
            # Doubles every three seconds: the limit that was learned is no more.
            self._growth_per_s = min(_FASTEST_PER_S, self._growth_per_s * 2.0 ** (seconds / 3.0))
            growth = self._growth_per_s
        # Never by much from one request to the next: a slow pace must be able to see what it meets.
        self.pace *= (1.0 + min(growth, _FASTEST_PER_REQUEST * self.pace)) ** min(seconds, 5.0)

    def _close_slot(self, now: float, accepted_per_s: float) -> None:
        # What answers need in flight, twice: where the pace is the limit, a narrow window would be one too many.
        needed = 0.0 if self._latency_s is None else 2.0 * accepted_per_s * self._latency_s + 2.0
        self._narrow(now, max(float(self.in_flight), needed), accepted_per_s)

    def _narrow(self, now: float, window: float, accepted_per_s: float) -> None:
        self._unlimited = False
        if window >= self.window:
            return
        self.window = max(1.0, window)
        self._step = 1
        self._probe_at = now + min(30.0, max(1.0, _PROBE_COST / max(accepted_per_s, 0.1)))

    def _cut(self, now: float, *, accepted_per_s: float, share: float, sent: int) -> None:
        before = self.pace
        explained = max(0.0, 1.0 - self._accepted_per_s / before)
        self._unexplained = max(0.0, self._unexplained + (share - explained - _VAIN_SHARE) * sent)
        self._vain_cuts = self._vain_cuts + 1 if share - explained > _VAIN_SHARE else max(0, self._vain_cuts - 1)
        if self._vain_cuts <= 1:
            self._first_share = share
        self._cut_at = now
        self._traffic.slots.clear()
        self._growth_per_s = _CREEP_PER_S
        if self._unexplained >= _UNEXPLAINED and self._vain_cuts >= _VAIN_CUTS and share >= self._first_share / 2:
            self._give_in(now, share)
            return
        # Where hardly anything was accepted, a quarter: the next measure will know more.
        floor = _LOWEST_PACE if math.isinf(before) else max(_LOWEST_PACE, before / 4)
        self.pace = min(before, max(floor, _BELOW * accepted_per_s))
        self._accepted_per_s = accepted_per_s
        self._pace_limit = self.pace / _BELOW
        self._trusted = self._pace_limit > 0.8 * before
        self._tokens = min(self._tokens, 0.0)

    def _give_in(self, now: float, share: float) -> None:
        """Less than what was accepted is sent, and as much of it is refused: take that for what it is."""
        self._background, self._background_until = min(0.5, 1.5 * share + 0.02), now + _BACKGROUND_S
        self.pace = math.inf
        self._unlimited = True
        self._unexplained = 0.0
        self._vain_cuts = 0
        self._accepted_per_s = 0.0
