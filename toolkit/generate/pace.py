"""How many requests a second one endpoint takes, learned from what it refuses. Pure: the clock is an argument.

Moments at which an endpoint refuses have one thing in common: it has nothing left to give. So what it accepted
between two of them, over the time between them, is its rate, whatever was sent meanwhile and however it counts: in a
bucket that fills steadily, or in windows that begin anew. The pace stands a little below that rate and creeps
upwards, until the next refusal says where the limit is now. Three things blur this, and each has its rule:

- Refusals that come of the same moment are one event: only what was sent after we heard of it says something new.
  Where that is refused, too, the endpoint is *shut*: single scouts go, further and further apart, and the rest
  follows the first that is not refused.
- Where nothing is sent because the endpoint asked for it, a small bucket runs over, and what it accepted is less than
  its rate; a window gives all that it has. Nobody knows which it is: the pace falls by a part, and comes back quickly
  up to where it was refused.
- Where the pace had gone far beyond the limit that was known, or where there was not enough to send, the endpoint had
  more to give than it was asked for: the measure is a lower bound, and the pace falls by a small part only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

_BELOW = 0.98
"""Pace after an event, as a share of the limit."""
_LOWEST = 0.2
"""Requests a second that are always tried."""
_LOWEST_FIRST = 10.0
"""Requests a second after a first refusal that came before enough was sent to tell anything by."""
_FEWEST_SENT, _FEWEST_ACCEPTED = 30, 10
"""Requests that a rate is measured on."""
_SURE_OVER = 1.02
"""A pace that goes this far beyond the limit unrefused has shown that limit to be gone: it grows faster and faster."""
_GONE = 1.1
"""From here on the time before says nothing of the rate any more."""
_CREEP_PER_S = 0.001
"""Growth near the limit, where an event costs a second. What costs more must come as much more rarely."""
_SLOWEST_CREEP_PER_S, _FASTEST_CREEP_PER_S = 0.0003, 0.002
_DOUBLES_S = 3.0
"""How soon growth doubles where the limit is gone; later where an event costs more, as with long windows."""
_BACK_PER_S, _BACK_PER_REQUEST = 0.03, 0.01
"""Growth up to where it is known to have been refused."""
_SEARCH_PER_S = 0.2
"""Growth before anything was measured."""
_FASTEST_PER_S, _FASTEST_PER_REQUEST = 0.5, 0.003
_BURST_S = 0.05
"""Timers are late: what they miss must not be lost, nor be taken for a lack of things to send."""
_LITTLE = 0.05
"""Share of an interval below which waiting cannot matter."""
_DOUBT = 0.7
"""How far the pace falls where all of an interval was waited for, as a share."""
_HARDLY = 0.97
_IDLE = 0.2
"""Share of an interval from which on it was not the pace that bounded what was sent."""
_CALM, _UNBOUND = 0.98, 0.9
"""The most that one event takes off after a long calm; and where the pace had run away."""
_RUNS_AWAY_PER_S = 0.005
_CALM_S, _CALM_EVENTS = 10.0, 5.0
"""A calm lasts so many seconds, and so many times what an event takes."""
_SCOUTS_APART = 0.125
"""Time between scouts, as a share of the time since the endpoint shut."""
_SOONEST_SCOUT_S, _LATEST_SCOUT_S = 0.01, 10.0
_LONGEST_WAIT_S = 0.5
"""How long a scout is waited for: what is refused so slowly costs more time than it is worth."""
_LATE_S = 2.0
_FORGETS = 0.9
"""Each event counts so much less than the next in how long one takes."""
_SLOT_S, _SLOTS_S = 0.005, 30.0
_OPENINGS = 64


@dataclass(frozen=True, slots=True)
class _Mark:
    """One moment, and what had been until then.

    Attributes:
        at: When a request was sent: the first that was refused, or the first that was not.
        sent: Requests before it.
        refused: Those of them that were refused.
        paused_s: Seconds that nothing was sent because the endpoint asked for it.
        shut_s: Seconds between scouts, those paused included.
        waited_s: Seconds that a scout was waited for.
        idle_s: Seconds in which more might have been sent than there was.
    """

    at: float
    sent: int
    refused: int
    paused_s: float
    shut_s: float
    waited_s: float
    idle_s: float

    def accepted_until(self, later: _Mark) -> int:
        """Requests that were not refused."""
        return later.sent - self.sent - (later.refused - self.refused)

    def tells_until(self, later: _Mark) -> bool:
        """Whether enough was sent and accepted to measure a rate on."""
        return later.sent - self.sent >= _FEWEST_SENT and self.accepted_until(later) >= _FEWEST_ACCEPTED


@dataclass(frozen=True, slots=True)
class Cut:
    """What one event said.

    Attributes:
        before: The pace until now, requests a second.
        limit: Requests a second that the endpoint is believed to take.
        sent: Requests that were sent after the cut before had been heard of.
        refused: Those of them that were refused, scouts left out.
    """

    before: float
    limit: float
    sent: int
    refused: int


class Pace:
    """Requests a second that may be sent.

    Attributes:
        per_s: The pace; infinite before the first refusal.
        limit: Requests a second that the endpoint is believed to take; infinite before the first refusal.
        is_measured: Whether that was measured between two refusals, not guessed from the first.
    """

    def __init__(self, *, now: float):
        self.per_s = math.inf
        self.limit = math.inf
        self.is_measured = False
        self._began = self._at = now
        self._tokens = 1.0
        self._growth_per_s = _FASTEST_CREEP_PER_S
        self._sent = self._refused = 0
        self._slots: deque[tuple[float, int]] = deque()
        self._paused_until = -math.inf
        self._paused_s = self._shut_s = self._waited_s = self._idle_s = 0.0
        self._heard_at, self._sent_when_heard, self._refused_when_heard = -math.inf, 0, 0
        self._event_at, self._event_s = -math.inf, 0.0
        self._cut: _Mark | None = None
        self._cut_heard_at, self._sent_when_cut, self._refused_since_cut = -math.inf, 0, 0
        self._shut_at: float | None = None
        self._scout_at: float | None = None
        self._next_scout_at = -math.inf
        self._refusal_s = 0.0
        self._openings: deque[_Mark] = deque(maxlen=_OPENINGS)

    # --- asking ---------------------------------------------------------------------------------

    def wait_s(self, now: float) -> float:
        """Seconds until the next request may be sent; 0: now."""
        self._pass(now)
        if now < self._paused_until:
            return self._paused_until - now
        if self._shut_at is not None:
            if self._scout_at is None:
                return max(0.0, self._next_scout_at - now)
            open_at = self._scout_at + min(2.0 * self._refusal_s + _SOONEST_SCOUT_S, _LONGEST_WAIT_S)
            if now < open_at:
                return open_at - now
            self._open(self._scout_at - self._shut_at)
        if self._tokens >= 1.0 or math.isinf(self.per_s):
            return 0.0
        return (1.0 - self._tokens) / self.per_s

    def paused_s(self, now: float) -> float:
        """Seconds that everything waits because the endpoint asked for it; 0 where nothing does."""
        return max(0.0, self._paused_until - now)

    # --- telling --------------------------------------------------------------------------------

    def sent(self, now: float) -> None:
        """One request is on its way."""
        if not self._slots or now - self._slots[-1][0] >= _SLOT_S:
            self._slots.append((now, self._sent))
            while now - self._slots[0][0] > _SLOTS_S:
                self._slots.popleft()
        self._sent += 1
        self._tokens -= 0.0 if math.isinf(self.per_s) else 1.0
        if self._shut_at is not None and self._scout_at is None:
            self._scout_at = now

    def answered(self, *, sent_at: float) -> None:
        """One request was answered."""
        if self._shut_at is not None and self._scout_at is not None and sent_at >= self._scout_at:
            self._open(self._scout_at - self._shut_at)

    def pause(self, now: float, seconds: float) -> None:
        """Send nothing for some seconds."""
        self._pass(now)
        self._paused_until = max(self._paused_until, now + seconds)

    def refused(self, now: float, *, sent_at: float, wished: bool) -> Cut | None:
        """One request was refused because of load; what that says, where it says something new.

        Args:
            now: This moment.
            sent_at: When it was sent.
            wished: Whether the endpoint said when to come back; `pause` was told.
        """
        self._pass(now)
        self._refusal_s += (0.5 if self._refusal_s else 1.0) * (now - sent_at - self._refusal_s)
        self._refused += 1
        was_known = sent_at < self._heard_at
        is_scout = self._shut_at is not None and not was_known
        self._refused_since_cut += sent_at >= self._cut_heard_at and not is_scout
        if was_known:
            self._refused_when_heard += 1
            if wished and self._shut_at is None and self._cut is not None:
                self._shut(now, self._event_at)
            return None
        all_refused = self._refused - self._refused_when_heard >= self._sent - self._sent_when_heard
        self._heard_at, self._sent_when_heard, self._refused_when_heard = now, self._sent, self._refused
        if self._shut_at is not None:
            self._shut(now, self._shut_at)
            return None
        if self._cut is not None and all_refused:
            self._shut(now, self._event_at)
            return None
        return self._event(now, sent_at, wished=wished)

    def lift(self) -> None:
        """Forget the limit: what is refused is refused whatever is sent."""
        self.per_s = self.limit = math.inf
        self.is_measured = False
        self._shut_at = self._scout_at = self._cut = None
        self._openings.clear()

    # --- time -----------------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """Let time pass: tokens come in, and the pace grows while it is what bounds."""
        passed = now - self._at
        if passed <= 0:
            return
        paused_s = max(0.0, min(now, self._paused_until) - self._at)
        self._paused_s += paused_s
        if self._scout_at is not None:
            self._waited_s += passed
        else:
            self._shut_s += paused_s if self._shut_at is None else passed
        self._at = now
        if math.isinf(self.per_s) or self._shut_at is not None:
            return
        running = passed - paused_s
        most = max(2.0, self.per_s * _BURST_S)
        idle = max(0.0, self._tokens + running * self.per_s - most)
        self._tokens = min(most, self._tokens + running * self.per_s)
        self._idle_s += idle / self.per_s
        if idle <= max(1.0, self.per_s * _BURST_S):
            self._grow(min(running, 5.0))

    def _grow(self, seconds: float) -> None:
        # Never by much from one request to the next: a slow pace must be able to see what it meets.
        most = _FASTEST_PER_REQUEST * self.per_s
        if not self.is_measured:
            growth = _SEARCH_PER_S
        elif self.per_s < 0.999 * _BELOW * self.limit:
            growth = min(_BACK_PER_S, _BACK_PER_REQUEST * self.per_s)
        elif self.per_s < _SURE_OVER * self.limit:
            growth = min(self._creep_per_s, most)
        else:
            doubled = 2.0 ** (seconds / max(_DOUBLES_S, self._event_s))
            self._growth_per_s = min(_FASTEST_PER_S, self._growth_per_s * doubled)
            growth = min(self._growth_per_s, most)
        self.per_s *= (1.0 + growth) ** seconds

    @property
    def _creep_per_s(self) -> float:
        wanted = _CREEP_PER_S / max(self._event_s, 1e-9)
        return max(_SLOWEST_CREEP_PER_S, min(_FASTEST_CREEP_PER_S, wanted))

    # --- events ---------------------------------------------------------------------------------

    def _event(self, now: float, sent_at: float, *, wished: bool) -> Cut | None:
        # Who hears so late was held up: what was counted meanwhile belongs to this moment, not to that one.
        mark = self._mark(sent_at if now - sent_at < _LATE_S else now, refused=self._refused - 1)
        cut = None
        if self._cut is None:
            # What a first burst met is a poor measure of what is taken for long, and the only one yet.
            lowest = _LOWEST_FIRST if self._sent < _FEWEST_SENT else 1.0
            self.per_s = self.limit = max(lowest, (self._sent - self._refused) / max(1.0, now - self._began))
            self._note_cut(mark, now)
        elif self._cut.tells_until(mark):
            cut = self._measure(self._cut, mark)
            self._note_cut(mark, now)
        self._event_at = mark.at
        self._tokens = min(self._tokens, 0.0)
        if wished or self.per_s * self._refusal_s > 1.0:
            self._shut(now, mark.at)
        else:
            self._event_s *= _FORGETS
        return cut

    def _mark(self, at: float, *, refused: int) -> _Mark:
        slot = bisect_right(self._slots, at, key=lambda one: one[0]) - 1
        sent = self._slots[max(0, slot)][1] if self._slots else 0
        return _Mark(at, sent, refused, self._paused_s, self._shut_s, self._waited_s, self._idle_s)

    def _note_cut(self, mark: _Mark, now: float) -> None:
        self._cut = mark
        self._cut_heard_at, self._sent_when_cut, self._refused_since_cut = now, self._sent, 0

    def _shut(self, now: float, since: float) -> None:
        """Nothing is taken: one scout after a while, and nothing else until it is known what became of it."""
        apart_s = max(_SCOUTS_APART * (now - since), 1.0 / self.per_s, _SOONEST_SCOUT_S)
        self._shut_at = since
        self._scout_at = None
        self._next_scout_at = now + min(apart_s, _LATEST_SCOUT_S)

    def _open(self, was_shut_s: float) -> None:
        if self._scout_at is not None:
            self._openings.append(self._mark(self._scout_at, refused=self._refused))
        self._event_s = max(_FORGETS * self._event_s, was_shut_s)
        self._shut_at = self._scout_at = None
        self._tokens = 0.0

    # --- the rate -------------------------------------------------------------------------------

    def _measure(self, since: _Mark, mark: _Mark) -> Cut:
        before = self.per_s
        surely, hardly = self._rates(since, mark)
        self.per_s = min(before, max(_LOWEST, _BELOW * surely))
        self.limit = max(self.per_s / _BELOW, hardly)
        self.is_measured = True
        self._growth_per_s = self._creep_per_s
        return Cut(before, self.limit, max(0, mark.sent - self._sent_when_cut), self._refused_since_cut)

    def _rates(self, since: _Mark, mark: _Mark) -> tuple[float, float]:
        """Requests a second between two refusals: what the endpoint takes, and what it may take at the very most."""
        passed = max(mark.at - since.at, 1e-3)
        shut = min(mark.shut_s - since.shut_s, 0.99 * passed)
        paused = min(mark.paused_s - since.paused_s, shut)
        waited = min(mark.waited_s - since.waited_s, 0.995 * passed - shut)
        idle = min(mark.idle_s - since.idle_s, 0.9 * (passed - shut - waited))
        running_s = passed - shut - waited - idle
        accepted = since.accepted_until(mark)
        counted = running_s + shut if shut > 2.0 * _LITTLE * passed else running_s
        found = max(accepted / counted, self._between_openings(since))
        is_idle = idle > _IDLE * (running_s + idle)
        if is_idle or self.per_s > _GONE * self.limit:
            creeps = self.is_measured and self._growth_per_s < _RUNS_AWAY_PER_S
            found = max(found, (_CALM if creeps else _UNBOUND) * self.per_s)
        elif mark.at - self._event_at > _CALM_S + _CALM_EVENTS * self._event_s:
            # It was the pace that bounded: a small bucket that ran over meanwhile would have had more to give.
            found = max(found, _CALM * self.per_s)
        if paused < _LITTLE * passed:
            return found, found
        running = min(accepted / running_s, self.per_s) if is_idle else self.per_s
        doubted = min(1.0 - _DOUBT * paused / passed, accepted / (mark.sent - since.sent))
        return max(found, doubted * running), max(found, _HARDLY * running)

    def _between_openings(self, since: _Mark) -> float:
        """Requests a second between the last two moments at which it took requests again after it had been shut: for
        windows that is exact. 0 where the last one is older than `since`.
        """
        if not self._openings or self._openings[-1].at < since.at:
            return 0.0
        last = self._openings[-1]
        first = next((one for one in reversed(self._openings) if one.tells_until(last)), None)
        return 0.0 if first is None else first.accepted_until(last) / max(last.at - first.at, 1e-3)
