"""What came of one request: an answer for the journal, or why it is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import structs

from toolkit.config import EndpointSettings, Routing, Secret
from toolkit.errors import PermanentError, TransientError
from toolkit.generate.plan import Planned
from toolkit.generate.retry import parse_retry_after
from toolkit.generate.secrecy import KeyWatch
from toolkit.generate.transport import Request, Response
from toolkit.records import Entry, Failure, IdsSource, Origin, Reply, storable_text
from toolkit.rows import RowBuilder, failure_of
from toolkit.wire import FORMS, NoAnswer
from toolkit.wire.reply import short

_WITHHELD = "the key stands in what came, so that is not kept"
_UNREACHED = frozenset({"dns_failed", "connection_refused", "tls_failed", "connection_reset", "connection_failed"})
"""Errors of `Transport` that speak of the endpoint, whatever is asked."""


class Answered(msgspec.Struct, frozen=True):
    """An answer of an allowed provider and of the contract's model."""

    entry: Entry
    reply: Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No answer, or one that nobody asked for.

    Attributes:
        again: Whether another try in this run may help.
        about_endpoint: Whether every request may fail like this one.
        retry_after_s: The least wait that the server wishes for, in seconds.
        stops_run: Why nothing more should be sent; None where that does not follow.
        provider: Who failed, behind OpenRouter, in a way that another might not: worth a rest if it goes on.
        shrink: Whether fewer requests in flight are asked for: what is in flight reserves all the credit.
    """

    failure: Failure
    again: bool = False
    about_endpoint: bool = False
    retry_after_s: float | None = None
    stops_run: str | None = None
    provider: str | None = None
    shrink: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Reads what one endpoint sends."""

    endpoint: EndpointSettings
    builder: RowBuilder
    key: Secret | None
    watch: KeyWatch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "watch", KeyWatch(self.key))

    def of_response(self, ask: Planned, request: Request, response: Response, *, at: float) -> Answered | Refused:
        """What a whole reply is; `at` in seconds since 1970."""
        received, fault = _text_of(response)
        text = self.watch.hide_in(received)
        wished = parse_retry_after(response.headers.get("retry-after"), now=at)
        answer = fault or FORMS[request.form](response.status, text, retry_after_s=wished)
        entry = self._entry_of(ask, request, text, status=response.status, at=at, latency_s=response.latency_s)
        if isinstance(answer, Reply) and (text != received or self._echoes(answer, text)):
            return self._secret_echoed(answer, entry)
        if isinstance(answer, NoAnswer):
            return self._refused(answer, entry)
        if answer.model is None:
            entry = structs.replace(entry, assumed=("model",))
        reply = self.builder.accept(entry, answer, where=self.endpoint.name)
        if isinstance(reply, Failure):
            return Refused(failure=reply, provider=answer.provider)
        return self._not_as_asked(reply, entry) or Answered(entry, reply)

    def of_error(self, ask: Planned, request: Request, error: TransientError, *, at: float) -> Refused:
        """What a request without a whole reply is."""
        # Hidden before it is cut: a cut key is still most of a key.
        told = self.watch.hide_in(str(error))
        detail = _WITHHELD if self.watch.finds_in(told) else short(told, 300)
        answer = NoAnswer(reason=error.reason, detail=detail, transient=True, status=error.status)
        entry = self._entry_of(ask, request, "", status=error.status or 0, at=at, latency_s=None)
        return Refused(
            failure=failure_of(answer, entry, where=self.endpoint.name),
            again=True,
            about_endpoint=error.reason in _UNREACHED,
        )

    def of_unsent(self, ask: Planned, error: PermanentError, *, at: float) -> Refused:
        """What an ask is for which `WireFormat.request_of` has no request.

        A prompt that cannot be rendered is a final failure. All else is a matter of settings, and stops the run.
        """
        answer = NoAnswer(reason=error.reason, detail=str(error), transient=False)
        failure = failure_of(answer, self._entry_of(ask, None, "", status=0, at=at), where=self.endpoint.name)
        failure = replace(failure, status=None, body=None)
        if error.reason == "prompt_unrenderable":
            return Refused(failure=failure)
        return Refused(failure=replace(failure, final=False), stops_run=failure.detail)

    def _refused(self, answer: NoAnswer, entry: Entry) -> Refused:
        if self.watch.finds_in_body(entry.body):
            # The key stands there in a form that cannot be cut out: neither the body nor the words of it are kept.
            answer = replace(answer, detail=f"{answer.reason}: {_WITHHELD}", provider=None, model=None)
            entry = structs.replace(entry, body="")
        failure = failure_of(answer, entry, where=self.endpoint.name)
        # Where the endpoint, the key or the credit is at fault, the prompt is asked again by another run.
        final = not (answer.transient or answer.stops_run or answer.about_endpoint)
        return Refused(
            failure=replace(failure, final=final),
            again=answer.transient,
            about_endpoint=answer.about_endpoint,
            retry_after_s=answer.retry_after_s,
            stops_run=failure.detail if answer.stops_run else None,
            provider=failure.provider if answer.transient and not answer.shrink else None,
            shrink=answer.shrink,
        )

    def _echoes(self, reply: Reply, text: str) -> bool:
        plain = self.watch.is_plain(text)
        if self.watch.finds_in_reply(reply, self.builder.vocabulary, plain=plain):
            return True
        return not plain and self.watch.finds_in_decoded(text)

    def _secret_echoed(self, reply: Reply, entry: Entry) -> Refused:
        """An answer with the key in it: no row, for its text is not to be kept, and no second try, for it was paid."""
        bare = NoAnswer(
            reason="secret_echoed",
            detail=_WITHHELD,
            transient=True,
            provider=self._clean(reply.provider),
            model=self._clean(reply.model),
            cost_usd=reply.cost_usd,
        )
        failure = failure_of(bare, structs.replace(entry, body=""), where=self.endpoint.name)
        return Refused(failure=replace(failure, body=None), about_endpoint=True)

    def _clean(self, text: str | None) -> str | None:
        return None if text is None or self.watch.finds_in(text) else text

    def _not_as_asked(self, reply: Reply, entry: Entry) -> Refused | None:
        """An answer of somebody else, or without the ids that were required.

        Neither is final: routing and ids are no part of the identity, so another run may be answered as asked.
        """
        detail = provider_fault(reply.provider, self.endpoint.provider)
        reason = "provider_not_allowed"
        about_endpoint = False
        if detail is None and self.endpoint.ids == "require" and reply.output_ids is None:
            reason, detail = "ids_missing", "expected token ids from the engine, found none"
            about_endpoint = True
        if detail is None:
            return None
        refused = NoAnswer(
            reason=reason,
            detail=detail,
            transient=True,
            provider=reply.provider,
            model=reply.model,
            cost_usd=reply.cost_usd,
        )
        failure = failure_of(refused, entry, where=self.endpoint.name)
        return Refused(failure=failure, about_endpoint=about_endpoint)

    def _entry_of(
        self,
        ask: Planned,
        request: Request | None,
        body: str,
        *,
        status: int,
        at: float,
        latency_s: float | None = None,
    ) -> Entry:
        return Entry(
            row_key=ask.row_key,
            sample_id=ask.sample_id,
            turn=ask.turn,
            sample_index=ask.sample_index,
            probe=ask.probe,
            source=self.endpoint.source,
            origin=Origin.GENERATE,
            contract=self.builder.contract.name,
            mode=ask.mode,
            model=ask.model,
            form="openai" if request is None else request.form,
            body=body,
            status=status,
            messages=ask.messages,
            tools=ask.tools,
            request=None if request is None else request.sent,
            sampling=dict(ask.sampling),
            max_tokens=ask.max_tokens,
            # Ids that nobody asked for, or that come through a third party, are somebody's word, not the engine's.
            ids_are=IdsSource.GIVEN if self.endpoint.ids == "off" else IdsSource.ENGINE,
            tool_ids=ask.tool_ids,
            received_at=at,
            latency_s=latency_s,
            streamed=self.endpoint.stream,
        )


def _text_of(response: Response) -> tuple[str, NoAnswer | None]:
    """The body as text, and why it is none."""
    try:
        return response.body.decode("utf-8"), None
    except UnicodeDecodeError as error:
        # A replaced byte would pass for something that the model wrote.
        detail = f"expected UTF-8, found another byte at {error.start}"
        fault = NoAnswer(reason="not_utf8", detail=detail, transient=True, status=response.status)
        return response.body.decode("utf-8", "replace"), fault


def provider_fault(provider: str | None, routing: Routing) -> str | None:
    """Why this provider should not have answered; None where it may, or where nobody is named."""
    if provider is None:
        return None
    allowed = routing.only or (routing.order if routing.allow_fallbacks is False else None)
    if allowed is None and not routing.ignore:
        return None
    found = storable_text(short(provider, 80))
    if allowed is not None and not _is_named(provider, allowed):
        return f"expected one of {', '.join(allowed)}, found {found!r}"
    if routing.ignore and _is_named(provider, routing.ignore):
        return f"expected none of {', '.join(routing.ignore)}, found {found!r}"
    return None


def _is_named(provider: str, slugs: Iterable[str]) -> bool:
    """Whether a display name (`Moonshot AI`) is meant by a slug (`moonshotai/int4`)."""
    return _bare(provider) in {_bare(slug.partition("/")[0]) for slug in slugs}


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
