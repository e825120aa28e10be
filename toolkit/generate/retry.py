"""How long to wait before asking again. Pure: clock and chance are arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Full jitter under an exponential ceiling, and a bounded number of tries.

    Attributes:
        max_tries: Requests for one ask, the first included.
        base_s: Ceiling of the first wait; each further one doubles it.
        cap_s: Highest ceiling.
        longest_wish_s: A server that wishes for more is not waited for in this run.
    """

    max_tries: int = 5
    base_s: float = 1.0
    cap_s: float = 60.0
    longest_wish_s: float = 600.0

    def wait_s(self, tries: int, *, chance: float, wished_s: float | None = None) -> float | None:
        """Seconds to wait after `tries` failed requests; None: do not ask again.

        Args:
            tries: Requests made so far, from 1.
            chance: A random number from 0 to 1.
            wished_s: The server's Retry-After. It is the least wait; jitter comes on top of it, or all who were
                refused at once would come back at once.
        """
        if tries >= self.max_tries:
            return None
        jitter = chance * min(self.cap_s, self.base_s * 2.0 ** min(tries - 1, 60))
        if wished_s is None:
            return jitter
        return None if wished_s > self.longest_wish_s else wished_s + jitter


def parse_retry_after(value: str | None, *, now: float) -> float | None:
    """Seconds that a Retry-After header asks to wait; None where it says nothing that can be read.

    Args:
        value: Seconds, or an HTTP date.
        now: Seconds since 1970.
    """
    text = (value or "").strip()
    if not text or len(text) > 64 or not text.isascii():
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _until(text, now)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        # A date without a zone is in GMT: HTTP knows no other.
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, OverflowError):
        return None
