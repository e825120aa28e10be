"""What came of one request: an answer for the journal, or why it is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from toolkit.config import EndpointSettings, Routing, Secret
from toolkit.errors import TransientError
from toolkit.generate.plan import Planned
from toolkit.generate.retry import parse_retry_after
from toolkit.generate.transport import Response
from toolkit.records import SOURCES_WITH_IDS, Entry, Failure, IdsSource, Json, Origin, Reply, storable_text
from toolkit.rows import RowBuilder, failure_of
from toolkit.wire import NoAnswer, read_completion
from toolkit.wire.reply import short

_ABOUT_THE_ENDPOINT = frozenset({301, 302, 303, 307, 308, 404, 405})
"""Statuses that speak of the URL or of the routing, not of the prompt: another try now would fare no better, and
a later run, with other settings, may. Neither belongs to a request's identity."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of an allowed provider and of the contract's model."""

    entry: Entry
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No answer, or one that nobody asked for.

    Attributes:
        again: Whether another try in this run may help.
        about_endpoint: Whether every request may fail like this one.
        stops_run: Why nothing more should be sent; None where that does not follow.
    """

    failure: Failure
    again: bool = False
    about_endpoint: bool = False
    retry_after_s: float | None = None
    stops_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Reads what one endpoint sends."""

    endpoint: EndpointSettings
    builder: RowBuilder
    key: Secret | None

    def of_response(
        self, ask: Planned, request: dict[str, Json], response: Response, *, at: float
    ) -> Answered | Refused:
        """What a whole reply is; `at` in seconds since 1970."""
        text, fault = self._text_of(response)
        entry = self._entry_of(ask, request, text, status=response.status, at=at, latency_s=response.latency_s)
        wished = parse_retry_after(response.headers.get("retry-after"), now=at)
        answer = fault or read_completion(response.status, text, retry_after_s=wished)
        if isinstance(answer, NoAnswer):
            return self._refused(answer, entry)
        if answer.model is None:
            entry = replace(entry, assumed=("model",))
        reply = self.builder.read(entry, where=self.endpoint.name)
        if isinstance(reply, Failure):
            return Refused(failure=reply)
        detail = provider_fault(reply.provider, self.endpoint.provider)
        if detail is not None:
            # Routing is no part of the identity, so this is never final: another run may be answered as asked.
            refused = NoAnswer(
                reason="provider_not_allowed",
                detail=detail,
                transient=True,
                provider=reply.provider,
                model=reply.model,
                cost_usd=reply.cost_usd,
            )
            return Refused(failure=failure_of(refused, entry, where=self.endpoint.name))
        return Answered(entry, reply)

    def of_error(self, ask: Planned, request: dict[str, Json], error: TransientError, *, at: float) -> Refused:
        """What a request without a whole reply is."""
        detail = str(error) if self.key is None else self.key.hide_in(str(error))
        answer = NoAnswer(reason=error.reason, detail=detail, transient=True, status=error.status)
        entry = self._entry_of(ask, request, "", status=error.status or 0, at=at, latency_s=None)
        return Refused(
            failure=failure_of(answer, entry, where=self.endpoint.name),
            again=True,
            about_endpoint=error.reason == "connection_failed",
        )

    def _refused(self, answer: NoAnswer, entry: Entry) -> Refused:
        failure = failure_of(answer, entry, where=self.endpoint.name)
        if answer.status in _ABOUT_THE_ENDPOINT:
            failure = replace(failure, reason=f"http_{answer.status}", final=False)
            return Refused(failure=failure, about_endpoint=True)
        if answer.stops_run:
            # The prompt is not at fault: with another key or with credit it is asked again.
            return Refused(failure=replace(failure, final=False), stops_run=failure.detail)
        return Refused(failure=failure, again=answer.transient, retry_after_s=answer.retry_after_s)

    def _text_of(self, response: Response) -> tuple[str, NoAnswer | None]:
        """The body as text without the key, and why it is none."""
        fault = None
        try:
            text = response.body.decode("utf-8")
        except UnicodeDecodeError as error:
            # A replaced byte would pass for something that the model wrote.
            text = response.body.decode("utf-8", "replace")
            detail = f"expected UTF-8, found another byte at {error.start}"
            fault = NoAnswer(reason="not_utf8", detail=detail, transient=True, status=response.status)
        return (text if self.key is None else self.key.hide_in(text)), fault

    def _entry_of(
        self, ask: Planned, request: dict[str, Json], body: str, *, status: int, at: float, latency_s: float | None
    ) -> Entry:
        has_ids = self.endpoint.source in SOURCES_WITH_IDS
        return Entry(
            row_key=ask.row_key,
            sample_id=ask.sample_id,
            sample_index=ask.sample_index,
            source=self.endpoint.source,
            origin=Origin.GENERATE,
            contract=self.builder.contract.name,
            mode=ask.mode,
            model=ask.model,
            form="openai",
            body=body,
            status=status,
            messages=ask.messages,
            tools=ask.tools,
            request=request,
            sampling=dict(ask.sampling),
            max_tokens=ask.max_tokens,
            # Ids that come through a third party are somebody's word, not the engine's.
            ids_are=IdsSource.ENGINE if has_ids else IdsSource.GIVEN,
            tool_ids=ask.tool_ids,
            received_at=at,
            latency_s=latency_s,
            streamed=self.endpoint.stream,
        )


def provider_fault(provider: str | None, routing: Routing) -> str | None:
    """Why this provider should not have answered; None where it may, or where nobody is named."""
    if provider is None:
        return None
    allowed = routing.only or (routing.order if routing.allow_fallbacks is False else None)
    found = storable_text(short(provider, 80))
    if allowed is not None and not _is_named(provider, allowed):
        return f"expected one of {', '.join(allowed)}, found {found!r}"
    if _is_named(provider, routing.ignore or ()):
        return f"expected none of {', '.join(routing.ignore or ())}, found {found!r}"
    return None


def _is_named(provider: str, slugs: Iterable[str]) -> bool:
    """Whether a display name (`Moonshot AI`) is meant by a slug (`moonshotai/int4`)."""
    return _bare(provider) in {_bare(slug.partition("/")[0]) for slug in slugs}


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
