"""One reply as it goes over the wire, and what it costs: decided by a face, carried out by the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from toolkit.simulate.refusals import Refusal

JSON = "application/json"
HTML = "text/html"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A reply.

    Attributes:
        early: Sent at once, and again every `keep_alive_s` until `wait_s` is over; empty: headers wait as well.
        wait_s: Time before the body, in seconds.
        spread_s: Time over which the body is sent.
        cut_at: Share of the body after which the connection ends, 0 to 1; None: all of it is sent.
        tears: Whether a cut connection is torn; else the body simply ends there.
        bare: Whether the connection is torn before anything at all is sent.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    body: bytes = b""
    early: bytes = b""
    wait_s: float = 0.0
    keep_alive_s: float = 0.5
    spread_s: float = 0.0
    cut_at: float | None = None
    tears: bool = False
    bare: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the reply goes out whole, in one piece and with its length."""
        return not self.early and self.cut_at is None and not self.bare and not self.spread_s

    @property
    def is_whole(self) -> bool:
        """Whether the client gets everything if it stays."""
        return self.cut_at is None and not self.bare


def sent(refusal: Refusal, *, wait_s: float = 0.0) -> Sending:
    """A refusal as a reply."""
    return Sending(status=refusal.status, headers=refusal.headers, body=orjson.dumps(refusal.body), wait_s=wait_s)
