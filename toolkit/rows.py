"""From what was asked and what came to a row of a shard. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec
import orjson
from msgspec import structs

from toolkit.assembly import Rebuilt, assemble, encode_together, packed, unpacked
from toolkit.contract import Contract, ToolForm
from toolkit.prompt import PromptPlan, PromptRenderer
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
from toolkit.store.arrays import Columns
from toolkit.vocabulary import Vocabulary
from toolkit.wire import FORMS, NoAnswer, dump_json

PAYLOAD_KEYS = (
    "form", "status", "body", "request", "sampling", "max_tokens", "stop", "ids_are", "assumed", "tool_ids", "model",
    "received_at",
)  # fmt: skip
"""Fields of an entry that the shard keeps in `payload`, so that ids can be rebuilt without asking again."""

_LISTS = frozenset({"output_ids", "prompt_ids", "notes"})

_RENDERED = "rendered"
"""`prompt_ids_source` of ids that were made here."""

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
        columns = self.build_all([(entry, reply)])
        row = {name: value for name, (value,) in columns.items()}
        row |= {name: _as_list(row[name]) for name in _LISTS}
        return row | {"payload": row["payload"].decode()}

    def build_all(
        self, answers: Sequence[tuple[Entry, Reply]], bodies: Sequence[bytes | None] | None = None
    ) -> Columns:
        """Rows of several answers, in their order: the values of every column of `SHARD_SCHEMA`, ids packed.

        Their texts are encoded one right after the other, which takes half the time.

        Args:
            answers: What was asked, and what came.
            bodies: The body of each entry as JSON, where it is at hand: the rows are the same without.
        """
        plans = [plan_rebuild(reply, _ask_of(entry), self.contract, self.vocabulary) for entry, reply in answers]
        prompts = [self._plan_prompt(entry, reply) for entry, reply in answers]
        outputs = encode_together([plan.stretches for plan in plans], self.vocabulary.encode_packed)
        prompt_ids = encode_together([prompt.stretches for prompt in prompts], self._encode_once)
        rebuilt = [*map(assemble, plans, outputs)]
        rendered = [*map(_check_prompt, answers, prompts, prompt_ids)]
        given = bodies if bodies is not None else [None] * len(answers)
        return self._columns([entry for entry, _ in answers], [reply for _, reply in answers], rebuilt, rendered, given)

    def _encode_once(self, texts: Sequence[str]) -> list[bytes]:
        """Packed ids of each text; of several that are equal, as a system's in many prompts, one is encoded."""
        distinct = [*dict.fromkeys(texts)]
        encoded = dict(zip(distinct, self.vocabulary.encode_packed(distinct), strict=True))
        return [encoded[text] for text in texts]

    def _columns(
        self,
        entries: Sequence[Entry],
        replies: Sequence[Reply],
        rebuilt: Sequence[Rebuilt],
        prompts: Sequence[_Prompt],
        bodies: Sequence[bytes | None],
    ) -> Columns:
        answers = [*zip(entries, replies, strict=True)]
        return {
            "row_key": [entry.row_key for entry in entries],
            "sample_id": [entry.sample_id for entry in entries],
            "turn": [entry.turn for entry in entries],
            "sample_index": [entry.sample_index for entry in entries],
            "probe": [entry.probe for entry in entries],
            "source": [entry.source for entry in entries],
            "origin": [str(entry.origin) for entry in entries],
            "provider": _storable([reply.provider for reply in replies]),
            "model": _storable([entry.model if reply.model is None else reply.model for entry, reply in answers]),
            "mode": [entry.mode for entry in entries],
            "contract": [self.contract.name] * len(entries),
            "contract_sha256": [self.contract.sha256] * len(entries),
            "messages": [_json(entry.messages) for entry in entries],
            "tools": [_json(entry.tools) for entry in entries],
            "payload": [*map(_payload_of, entries, bodies)],
            "reasoning": _storable([one.reasoning for one in rebuilt]),
            "content": _storable([one.content for one in rebuilt]),
            "tool_calls": [_calls_of(one) for one in rebuilt],
            "finish_reason": _storable([reply.finish_reason for reply in replies]),
            "native_finish_reason": _storable([reply.native_finish_reason for reply in replies]),
            "prompt_tokens": [reply.prompt_tokens for reply in replies],
            "completion_tokens": [reply.completion_tokens for reply in replies],
            "reasoning_tokens": [reply.reasoning_tokens for reply in replies],
            "cost_usd": [reply.cost_usd for reply in replies],
            "request_id": _storable([reply.request_id for reply in replies]),
            "created": [reply.created for reply in replies],
            "latency_s": [entry.latency_s for entry in entries],
            "streamed": [entry.streamed if reply.streamed is None else reply.streamed for entry, reply in answers],
            "output_ids": [one.output for one in rebuilt],
            "ids_source": [None if one.source is None else str(one.source) for one in rebuilt],
            "prompt_ids": [prompt.ids for prompt in prompts],
            "prompt_ids_source": [prompt.source for prompt in prompts],
            "rebuild_status": [str(one.status) for one in rebuilt],
            "notes": [*map(_notes_of, entries, rebuilt, prompts)],
        }

    def _plan_prompt(self, entry: Entry, reply: Reply) -> PromptPlan:
        if _prompt_source(entry, reply) != _RENDERED:
            came = list(reply.prompt_ids or ())
            if not all(0 <= token_id < self.contract.vocab_size for token_id in came):
                return PromptPlan(stretches=None, notes=("prompt_ids_invalid",))
            # Ids that end as another mode's prompt say that the row's mode is not the one that was answered.
            return PromptPlan(stretches=[packed(came)], ends_with=self._prompts.tail(entry.mode))
        if entry.messages is None:
            return PromptPlan(stretches=None, notes=("prompt_unknown",))
        return self._prompts.plan(entry.messages, entry.tools, entry.mode)


class _Prompt(msgspec.Struct, frozen=True):
    """The prompt of a row: ids that are packed or None, where they come from, and notes."""

    ids: bytes | None
    source: str | None
    notes: tuple[str, ...]


def _check_prompt(answer: tuple[Entry, Reply], plan: PromptPlan, ids: bytes | None) -> _Prompt:
    entry, reply = answer
    found, notes = plan.check(ids)
    if found is None:
        return _Prompt(None, None, notes)
    source = _prompt_source(entry, reply)
    sent = (entry.request or {}).get("input_ids_sha256") if source == _RENDERED else None
    if sent is not None and hash_of_ids(unpacked(found).tolist()) != sent:
        # Rendered otherwise than when it was asked: these are not the ids that were answered.
        return _Prompt(None, None, ("prompt_not_as_sent",))
    return _Prompt(found, source, notes)


def _payload_of(entry: Entry, body: bytes | None) -> bytes:
    """What is kept of an entry, as JSON in UTF-8."""
    fields: dict[str, Json] = dict(zip(PAYLOAD_KEYS, _payload_fields(entry), strict=True))
    if body is not None:
        fields["body"] = orjson.Fragment(body)
    try:
        return orjson.dumps(fields)
    except TypeError:
        # A lone surrogate or a very large integer in the request, which only the other way can spell.
        return dump_json({**fields, "body": entry.body}).encode()


def _calls_of(rebuilt: Rebuilt) -> str | None:
    calls = [call.as_json() for call in rebuilt.tool_calls]
    return canonical_json(calls).decode() if calls else None


def _notes_of(entry: Entry, rebuilt: Rebuilt, prompt: _Prompt) -> tuple[str, ...]:
    assumed = [f"{name}_assumed" for name in entry.assumed]
    return tuple(dict.fromkeys((*rebuilt.notes, *prompt.notes, *assumed)))


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
        provider=None if came is None or came.provider is None else storable_text(came.provider),
        model=None if came is None or came.model is None else storable_text(came.model),
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
    """Where the ids of a prompt come from, if there are any: only an engine's word stands before our own rendering."""
    if not reply.prompt_ids:
        return _RENDERED
    if reply.ids_source is IdsSource.ENGINE:
        return str(IdsSource.ENGINE)
    return str(IdsSource.GIVEN) if entry.messages is None else _RENDERED


def _ask_of(entry: Entry) -> Ask:
    return Ask(mode=entry.mode, max_tokens=entry.max_tokens, stop=entry.stop)


def _as_list(value: bytes | Sequence[Any] | None) -> list[Any] | None:
    if value is None:
        return None
    return unpacked(value).tolist() if isinstance(value, bytes) else list(value)


def _storable(texts: list[str | None]) -> list[str | None]:
    return [text if text is None else storable_text(text) for text in texts]


def _json(value: Json) -> str | None:
    return None if value is None else dump_json(value)
