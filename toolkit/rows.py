"""From what was asked and what came to a row of a shard. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import orjson
from msgspec import structs

from toolkit.assembly import Ids32, Rebuilt, assemble
from toolkit.contract import Contract, ToolForm
from toolkit.prompt import PromptRenderer, RenderedPrompt
from toolkit.rebuild import plan_rebuild
from toolkit.records import (
    Ask,
    Entry,
    Failure,
    IdsSource,
    Json,
    Reply,
    canonical_json,
    storable_text,
)
from toolkit.vocabulary import Vocabulary
from toolkit.wire import FORMS, NoAnswer, dump_json

PAYLOAD_KEYS = (
    "form", "status", "body", "request", "sampling", "max_tokens", "stop", "ids_are", "assumed", "tool_ids", "model",
    "received_at",
)  # fmt: skip
"""Fields of an entry that the shard keeps in `payload`, so that ids can be rebuilt without asking again."""

_NAMES_REMEMBERED = 64

_payload_fields = attrgetter(*PAYLOAD_KEYS)


class RowBuilder:
    """Makes rows of one contract."""

    def __init__(self, contract: Contract, vocabulary: Vocabulary):
        self.contract = contract
        self.vocabulary = vocabulary
        self._prompts = PromptRenderer(contract, vocabulary)
        self._accepted: set[str] = set()

    def read(self, entry: Entry, *, where: str) -> Reply | Failure:
        """The reply of an entry, or why it is none: not an answer, or from a model that was not asked for."""
        return self.accept(entry, FORMS[entry.form](entry.status, entry.body), where=where)

    def accept(self, entry: Entry, answer: Reply | NoAnswer, *, where: str) -> Reply | Failure:
        """The same, for a body that has been read before."""
        if isinstance(answer, NoAnswer):
            return failure_of(answer, entry, where=where)
        model = answer.model if answer.model is not None else entry.model
        if model is not None and not self._accepts(model):
            detail = f"expected a model of {self.contract.name}, found {model!r}"
            return failure_about(entry, "model_mismatch", detail, where=where, came=answer)
        if answer.ids_source is not None and entry.ids_are is not answer.ids_source:
            answer = structs.replace(answer, ids_source=entry.ids_are)
        if answer.output_ids is None and (entry.request or {}).get("return_token_ids") is True:
            answer = structs.replace(answer, notes=tuple(dict.fromkeys((*answer.notes, "ids_not_returned"))))
        return answer

    def _accepts(self, model: str) -> bool:
        # Every reply bears one of a few names, and patterns are slow to match.
        if model in self._accepted:
            return True
        if not self.contract.accepts_model(model):
            return False
        if len(self._accepted) < _NAMES_REMEMBERED:
            self._accepted.add(model)
        return True

    def build(self, entry: Entry, reply: Reply) -> dict[str, Any]:
        """One row: a value for every column of `SHARD_SCHEMA`, ids as lists."""
        (row,) = self.build_all([(entry, reply)])
        return row | {name: _listed(row[name]) for name in ("output_ids", "prompt_ids")}

    def build_all(
        self, answers: Sequence[tuple[Entry, Reply]], bodies: Sequence[bytes | None] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of several answers, in their order: as `build`, but ids that were made here are arrays of 32 bits.

        Their texts are encoded one right after the other, which takes half the time.

        Args:
            answers: What was asked, and what came.
            bodies: The body of each entry as JSON, where it is at hand: the rows are the same without.
        """
        plans = [plan_rebuild(reply, _ask_of(entry), self.contract, self.vocabulary) for entry, reply in answers]
        encoded = iter(self.vocabulary.encode_arrays([text for plan in plans for text in plan.texts]))
        # `assemble` takes of the texts what its plan has, and leaves the rest to the next.
        rebuilt = [assemble(plan, encoded) for plan in plans]
        given = bodies if bodies is not None else [None] * len(answers)
        return [
            self._row(entry, reply, one, body)
            for (entry, reply), one, body in zip(answers, rebuilt, given, strict=True)
        ]

    def _row(self, entry: Entry, reply: Reply, rebuilt: Rebuilt, body: bytes | None) -> dict[str, Any]:
        prompt = self._prompt(entry, reply)
        notes = [*rebuilt.notes, *prompt.notes, *(f"{name}_assumed" for name in entry.assumed)]
        calls = [call.as_json() for call in rebuilt.tool_calls]
        return {
            "row_key": entry.row_key,
            "sample_id": entry.sample_id,
            "turn": entry.turn,
            "sample_index": entry.sample_index,
            "probe": entry.probe,
            "source": entry.source,
            "origin": str(entry.origin),
            "provider": _storable(reply.provider),
            "model": _storable(reply.model if reply.model is not None else entry.model),
            "mode": entry.mode,
            "contract": self.contract.name,
            "contract_sha256": self.contract.sha256,
            "messages": _json(entry.messages),
            "tools": _json(entry.tools),
            "payload": _payload_of(entry, body),
            "reasoning": _storable(rebuilt.reasoning),
            "content": _storable(rebuilt.content),
            "tool_calls": canonical_json(calls).decode() if calls else None,
            "finish_reason": _storable(reply.finish_reason),
            "native_finish_reason": _storable(reply.native_finish_reason),
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "reasoning_tokens": reply.reasoning_tokens,
            "cost_usd": reply.cost_usd,
            "request_id": _storable(reply.request_id),
            "created": reply.created,
            "latency_s": entry.latency_s,
            "streamed": reply.streamed if reply.streamed is not None else entry.streamed,
            "output_ids": rebuilt.array,
            "ids_source": None if rebuilt.source is None else str(rebuilt.source),
            "prompt_ids": None if prompt.ids is None else np.array(prompt.ids, dtype=np.int32),
            "prompt_ids_source": None if prompt.ids is None else _prompt_source(entry, reply),
            "rebuild_status": str(rebuilt.status),
            "notes": list(dict.fromkeys(notes)),
        }

    def _prompt(self, entry: Entry, reply: Reply) -> RenderedPrompt:
        own = reply.ids_source is IdsSource.ENGINE
        if reply.prompt_ids and (own or entry.messages is None):
            # Only an engine's word about the prompt stands before our own rendering of it.
            if not all(0 <= token_id < self.contract.vocab_size for token_id in reply.prompt_ids):
                return RenderedPrompt(None, ("prompt_ids_invalid",))
            tail = [
                token_id
                for piece in self.contract.mode(entry.mode).prompt_ends_with
                for token_id in self.vocabulary.encode_rendered(piece)
            ]
            # Ids that end as another mode's prompt say that the row's mode is not the one that was answered.
            ids = list(reply.prompt_ids)
            return (
                RenderedPrompt(ids) if ids[len(ids) - len(tail) :] == tail else RenderedPrompt(None, ("prompt_tail",))
            )
        if entry.messages is None:
            return RenderedPrompt(None, ("prompt_unknown",))
        rendered = self._prompts.render(entry.messages, entry.tools, entry.mode)
        sent = (entry.request or {}).get("input_ids_sha256")
        if sent is not None and rendered.ids is not None and hash_of_ids(rendered.ids) != sent:
            # Rendered otherwise than when it was asked: these are not the ids that were answered.
            return RenderedPrompt(None, ("prompt_not_as_sent",))
        return rendered


def _payload_of(entry: Entry, body: bytes | None) -> str:
    fields: dict[str, Json] = dict(zip(PAYLOAD_KEYS, _payload_fields(entry), strict=True))
    if body is not None:
        try:
            return orjson.dumps(fields | {"body": orjson.Fragment(body)}).decode()
        except TypeError:
            pass  # a lone surrogate or a very large integer in the request, which only the other way can spell
    return dump_json(fields)


def hash_of_ids(ids: Sequence[int]) -> str:
    """sha256 of a list of ids, written as JSON without spaces."""
    return hashlib.sha256(dump_json(list(ids)).encode()).hexdigest()


def failure_of(answer: NoAnswer, entry: Entry, *, where: str) -> Failure:
    """The record of a reply that is no answer."""
    failure = failure_about(entry, answer.reason, answer.detail, where=where, came=answer)
    return replace(failure, final=not answer.transient, status=answer.status)


def failure_about(
    entry: Entry, reason: str, detail: str, *, where: str, came: NoAnswer | Reply | None = None
) -> Failure:
    """The record of an entry that gives no row; `came` says who answered, and at what cost."""
    return Failure(
        reason=reason,
        detail=storable_text(detail),
        final=True,
        where=where,
        sample_id=entry.sample_id,
        turn=entry.turn,
        sample_index=entry.sample_index,
        probe=entry.probe,
        row_key=entry.row_key,
        provider=None if came is None else _storable(came.provider),
        model=None if came is None else _storable(came.model),
        cost_usd=None if came is None else came.cost_usd,
        at=entry.received_at,
        body=entry.body,
    )


def rewrite_tool_ids(
    messages: Sequence[Mapping[str, Json]], contract: Contract
) -> tuple[list[dict[str, Json]], dict[str, str]]:
    """Give foreign tool ids of a history the contract's form, calls and results alike.

    Kimi stops at once when a history bears ids such as `call_9f3a`. IDX counts calls over the conversation.

    Returns:
        The messages, and the mapping old → new of the ids that changed.
    """
    if contract.tools is None:
        return [dict(message) for message in messages], {}
    form = contract.tools
    kept = {
        call["id"]
        for message in messages
        if isinstance(message.get("tool_calls"), list)
        for call in message["tool_calls"]
        if form.id_matches(call["id"], call["function"]["name"])
    }
    current: dict[str, str] = {}
    changed: dict[str, str] = {}
    count = 0
    rewritten: list[dict[str, Json]] = []
    for message in messages:
        new = dict(message)
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            renamed = []
            for call in calls:
                name = call["function"]["name"]
                own = call["id"] if form.id_matches(call["id"], name) else None
                while own is None and _tool_id(form, name, count) in kept:
                    count += 1
                new_id = own or _tool_id(form, name, count)
                current[call["id"]] = new_id
                if new_id != call["id"]:
                    changed[call["id"]] = new_id
                renamed.append({**call, "id": new_id})
                count += 1
            new["tool_calls"] = renamed
        if message.get("role") == "tool" and message.get("tool_call_id") in current:
            new["tool_call_id"] = current[message["tool_call_id"]]
        rewritten.append(new)
    return rewritten, changed


def _tool_id(form: ToolForm, name: str, index: int) -> str:
    return form.id_form.replace("{name}", name).replace("{index}", str(index))


def _prompt_source(entry: Entry, reply: Reply) -> str:
    if reply.prompt_ids and reply.ids_source is IdsSource.ENGINE:
        return str(IdsSource.ENGINE)
    return str(IdsSource.GIVEN) if reply.prompt_ids and entry.messages is None else "rendered"


def _ask_of(entry: Entry) -> Ask:
    return Ask(mode=entry.mode, max_tokens=entry.max_tokens, stop=entry.stop)


def _listed(ids: Ids32 | list[int] | None) -> list[int] | None:
    return ids.tolist() if isinstance(ids, np.ndarray) else ids


def _storable(text: str | None) -> str | None:
    return text if text is None or text.isascii() else storable_text(text)


def _json(value: Json) -> str | None:
    return None if value is None else dump_json(value)
