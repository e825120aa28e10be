"""Providers that fail are rested: asked not to answer for a while. Pure: the clock is an argument.

Routing says who may answer and is no part of what is asked, so resting asks nothing twice. A rest only ever takes
away: what the user allows in `only` and `order` stays as it is, and somebody is always left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from toolkit.config import Routing

_LATELY = 20
_FEWEST_FAILURES = 5
_WORST_SHARE = 0.5
_FIRST_REST_S = 60.0
_LONGEST_REST_S = 900.0
_STRANGERS = 256


@lru_cache(256)
def bare(name: str) -> str:
    """A provider's name without what display names and slugs differ in (`Moonshot AI`, `moonshotai/int4`)."""
    return "".join(letter for letter in name.partition("/")[0].casefold() if letter.isalnum())


@dataclass(slots=True)
class _Record:
    """The latest outcomes of one provider, true where it answered."""

    outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=_LATELY))
    until: float = 0.0
    rest_s: float = _FIRST_REST_S


class Rests:
    """Who is rested, of the providers behind one endpoint."""

    def __init__(self, routing: Routing):
        self._routing = routing
        self._slugs = {bare(slug): slug for slug in (*(routing.only or ()), *(routing.order or ()))}
        self._records: dict[str, _Record] = {}

    def name_slugs(self, slugs: Mapping[str, str]) -> None:
        """Learn the slugs of display names: without its slug nobody can be rested, for none is guessed."""
        self._slugs |= {
            bare(name): slug.partition("/")[0] for name, slug in slugs.items() if bare(name) not in self._slugs
        }

    def answered(self, provider: str) -> None:
        """A provider gave an answer."""
        record = self._record_of(bare(provider))
        record.outcomes.append(True)
        if sum(record.outcomes) == _LATELY:
            record.rest_s = _FIRST_REST_S

    def failed(self, provider: str, now: float) -> bool:
        """A provider failed; whether it is rested, so that its failures say nothing about the endpoint."""
        name = bare(provider)
        record = self._record_of(name)
        record.outcomes.append(False)
        if now < record.until:
            return True
        failures = record.outcomes.count(False)
        if (
            failures < _FEWEST_FAILURES
            or failures < _WORST_SHARE * len(record.outcomes)
            or not self._may_rest(name, now)
        ):
            return False
        record.until = now + record.rest_s
        record.rest_s = min(_LONGEST_REST_S, 2 * record.rest_s)
        record.outcomes.clear()
        return True

    def resting(self, now: float) -> tuple[str, ...]:
        """Slugs of those who rest now, sorted."""
        resting = [self._slugs[name] for name, record in self._records.items() if now < record.until]
        return tuple(sorted(resting)) if resting else ()

    def routing(self, now: float) -> Routing:
        """The user's routing, with those who rest ignored."""
        rested = self.resting(now)
        if not rested:
            return self._routing
        from msgspec.structs import replace

        return replace(self._routing, ignore=(*(self._routing.ignore or ()), *rested))

    def _record_of(self, name: str) -> _Record:
        """The record of a provider; of names that nobody listed only some are kept, for a server may invent them."""
        record = self._records.get(name)
        if record is None:
            record = _Record()
            if name in self._slugs or len(self._records) < _STRANGERS:
                self._records[name] = record
        return record

    def _may_rest(self, name: str, now: float) -> bool:
        """Whether its slug is known, and somebody else is left who may answer."""
        if name not in self._slugs:
            return False
        allowed = self._routing.only or (self._routing.order if self._routing.allow_fallbacks is False else None)
        known = {bare(slug) for slug in allowed} if allowed else set(self._slugs)
        gone = {bare(slug) for slug in (*(self._routing.ignore or ()), *self.resting(now))} | {name}
        return bool(known - gone)
