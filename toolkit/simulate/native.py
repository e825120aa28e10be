"""SGLang's POST /generate: prompt ids or text in, ids and text out. No sockets.

Stop ids stand in output_ids and count; the length is tested before the stop id. Calls are not played here: what
tools a rendered prompt declares is not read back from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from toolkit.contract import Contract
from toolkit.errors import PermanentError
from toolkit.records import Json
from toolkit.simulate.answers import Answer
from toolkit.simulate.asked import Asked, flag_of
from toolkit.simulate.behaviours import BEHAVIOURS
from toolkit.simulate.bodies import DONE
from toolkit.simulate.engine import NAN, carried, error_event, failed, limited
from toolkit.simulate.fate import Fate, fate_of
from toolkit.simulate.providers import ENGINE
from toolkit.simulate.routing import Routing, refusal
from toolkit.simulate.sending import EVENTS, Sending
from toolkit.simulate.shown import Body
from toolkit.simulate.simulation import Simulation, Turn
from toolkit.vocabulary import Vocabulary

CONTEXT_LENGTH = 262_144
_MAX_NEW_TOKENS = 128
_TOPIC_IDS = 200
_EVENTS = 20
_UNPLAYED = ("stop", "stop_token_ids", "stop_regex", "json_schema", "regex", "ebnf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One request, checked. Flags are those of `sampling_params` and of the request itself."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    no_stop_trim: bool
    skips_specials: bool
    stream: bool
    rid: str | None
    returns_logprobs: bool
    returns_prompt_ids: bool


def read_generate(body: Json, vocabulary: Vocabulary) -> Wanted:
    """The request in `body`, a decoded JSON value.

    Raises:
        PermanentError: status 400; the message names the field, what was expected and what was found.
    """
    if not isinstance(body, dict):
        raise refusal("the body", "a JSON object", body)
    sampling = body.get("sampling_params", {})
    if not isinstance(sampling, dict):
        raise refusal("sampling_params", "an object (one prompt a request)", sampling)
    for name in _UNPLAYED:
        if sampling.get(name):
            raise refusal(f"sampling_params.{name}", "nothing: the simulation does not play it", sampling[name])
    if sampling.get("n", 1) != 1:
        raise refusal("sampling_params.n", "1", sampling["n"])
    longest = sampling.get("max_new_tokens", _MAX_NEW_TOKENS)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
        raise refusal("sampling_params.max_new_tokens", "a whole number of at least 1", longest)
    ids = _prompt_ids(body, vocabulary)
    if len(ids) + longest > CONTEXT_LENGTH:
        message = f"expected at most {CONTEXT_LENGTH} ids of prompt and answer, found {len(ids)} and {longest}"
        raise PermanentError(message, reason="invalid_request", status=400)
    rid = body.get("rid")
    if rid is not None and not isinstance(rid, str):
        raise refusal("rid", "a string", rid)
    return Wanted(
        prompt_ids=ids,
        max_new_tokens=longest,
        no_stop_trim=flag_of(sampling, "no_stop_trim", False),
        skips_specials=flag_of(sampling, "skip_special_tokens", True),
        stream=flag_of(body, "stream", False),
        rid=rid,
        returns_logprobs=flag_of(body, "return_logprob", False),
        returns_prompt_ids=flag_of(body, "return_prompt_token_ids", False),
    )


def refused(error: PermanentError, body: Json) -> Sending | None:
    """How a stream tells a refusal: status 200 and an error event; None where no stream was asked for."""
    if isinstance(body, dict) and body.get("stream") is True:
        return Sending(content_type=EVENTS, body=error_event(str(error)))
    return None


def prompt_ids_key(ids: tuple[int, ...]) -> str:
    """What the ledger calls a prompt of ids: sha256 of their JSON list, without spaces."""
    return hashlib.sha256(orjson.dumps(ids)).hexdigest()


def asked_of(wanted: Wanted, contract: Contract, vocabulary: Vocabulary) -> Asked:
    """The request as the model takes it: the end of the prompt says what to speak of, its tail in which mode."""
    text = vocabulary.decode_bytes(wanted.prompt_ids[-_TOPIC_IDS:]).decode("utf-8", "replace")
    return Asked(
        model=contract.default_model,
        mode=_mode_of(wanted.prompt_ids, contract, vocabulary),
        messages=[{"role": "user", "content": text}],
        tools=None,
        calls_tools=False,
        tool=None,
        parallel_calls=False,
        max_tokens=wanted.max_new_tokens,
        stream=wanted.stream,
        shows_reasoning=True,
        nonce=0,
        routing=Routing(),
    )


def play(simulation: Simulation, turn: Turn, wanted: Wanted, asked: Asked, key: str) -> Sending:
    """What the request gets; the books are told through `turn`."""
    scenario, entry = simulation.scenario, turn.entry
    if not turn.enter(simulation.limiter):
        return limited(simulation, turn, flat=True)
    fate = fate_of(scenario, ENGINE, entry.identity, entry.attempt, face="sglang", stream=wanted.stream)
    turn.meet(fate)
    failure = failed(fate, scenario, stream=wanted.stream, flat=True)
    if failure is not None:
        return failure
    nonce = simulation.requests[key] - 1 if scenario.varies else 0
    made = simulation.answer_to(asked, key, nonce, fate.habits)
    entry.id = wanted.rid or f"{entry.identity[:24]}{entry.attempt}"
    ids, finish = _ended(made, wanted, fate)
    if fate.fault is None or (BEHAVIOURS[fate.fault].billed and scenario.bills_lost):
        turn.charge(made, {"prompt_tokens": len(wanted.prompt_ids), "completion_tokens": len(ids)})
    reply = _Reply(simulation, wanted, made, entry.id, finish, fate)
    if wanted.stream:
        body = b"".join(reply.events(ids, incremental=scenario.incremental_stream))
    else:
        body = orjson.dumps(reply.document(ids, 0, finish))
    return carried(body, fate, scenario, stream=wanted.stream, n_ids=len(ids))


def _ended(made: Answer, wanted: Wanted, fate: Fate) -> tuple[tuple[int, ...], Body]:
    """The ids that are told, and the finish_reason."""
    ids = made.ids
    if fate.fault in ("abort", "nan"):
        ids = ids[: max(1, int(len(ids) * fate.cut_at))]
    if fate.fault == "abort":
        # What /abort_request leaves: the scheduler's own aborts have a status instead.
        return ids, {"type": "abort", "message": "Abort", "status_code": None, "err_type": None}
    if fate.fault == "nan":
        return (*ids, made.ids[-1]), {"type": "stop", "matched": NAN}
    if len(ids) >= wanted.max_new_tokens or "length_with_terminal" in fate.habits:
        return ids, {"type": "length", "length": len(ids)}
    return ids, {"type": "stop", "matched": ids[-1]}


class _Reply:
    """One reply, whole or as events."""

    def __init__(self, simulation: Simulation, wanted: Wanted, made: Answer, rid: str, finish: Body, fate: Fate):
        self._vocabulary = simulation.vocabulary
        self._wanted, self._made, self._rid, self._finish, self._fate = wanted, made, rid, finish, fate
        contract = simulation.contract
        kept = contract.tool_ids | {contract.id_of(s) for s in (_think_spellings(contract))}
        self._skipped = frozenset(contract.special.values()) - kept
        self._terminals = contract.terminal_ids

    def document(self, ids: tuple[int, ...], start: int, finish: Body | None) -> Body:
        """The body that tells `ids[start:]`; `finish` None: more is to come."""
        document: Body = {
            "text": self._text(ids, start, finish),
            "output_ids": ids[start:],
            "meta_info": self._meta(ids, finish),
        }
        if self._wanted.returns_prompt_ids:
            document["prompt_token_ids"] = self._wanted.prompt_ids
        return document

    def events(self, ids: tuple[int, ...], *, incremental: bool) -> Iterator[bytes]:
        """The stream: everything so far in each event, or only what is new."""
        ends = sorted({max(1, len(ids) * i // _EVENTS) for i in range(1, _EVENTS + 1)})
        if self._fate.fault == "error_in_stream":
            ends = ends[: max(1, int(len(ends) * self._fate.cut_at))]
        start = 0
        for end in ends:
            is_last = end == len(ids) and self._fate.fault != "error_in_stream"
            document = self.document(ids[:end], start, self._finish if is_last else None)
            yield b"data: " + orjson.dumps(document) + b"\n\n"
            start = end if incremental else 0
        if self._fate.fault == "error_in_stream":
            yield error_event("The engine failed")
        elif "missing_done" not in self._fate.habits:
            yield DONE

    def _text(self, ids: tuple[int, ...], start: int, finish: Body | None) -> str:
        """The ids' text as servers show it: the matched stop id dropped, special ids skipped, cut characters too."""
        stopped = finish is not None and finish["type"] == "stop" and not self._wanted.no_stop_trim
        shown = ids[:-1] if stopped and ids[-1:] and ids[-1] in self._terminals else ids
        return self._shown(shown)[len(self._shown(shown[:start])) :]

    def _shown(self, ids: tuple[int, ...]) -> str:
        kept = [i for i in ids if i not in self._skipped] if self._wanted.skips_specials else ids
        return self._vocabulary.decode_bytes(kept).decode("utf-8", "ignore")

    def _meta(self, ids: tuple[int, ...], finish: Body | None) -> Body:
        meta: Body = {
            "id": self._rid,
            "finish_reason": finish,
            "prompt_tokens": len(self._wanted.prompt_ids),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "reasoning_tokens": min(self._made.reasoning_ids, len(ids)),
            "weight_version": "default",
            "e2e_latency": self._fate.latency_s,
        }
        if self._wanted.returns_logprobs:
            meta["output_token_logprobs"] = [[-0.25, token_id, None] for token_id in ids]
        return meta


def _think_spellings(contract: Contract) -> tuple[str, ...]:
    """Think and tool markers are added tokens that are not special: servers leave them in the text."""
    return () if contract.think is None else (contract.think.begin, contract.think.end)


def _mode_of(ids: tuple[int, ...], contract: Contract, vocabulary: Vocabulary) -> str:
    """The mode with the longest tail that the prompt ends with; else the default mode."""
    best, name = 0, contract.default_mode
    for candidate, mode in contract.modes.items():
        tail = vocabulary.encode_rendered("".join(mode.prompt_ends_with))
        if len(tail) > best and list(ids[-len(tail) :]) == tail:
            best, name = len(tail), candidate
    return name


def _prompt_ids(body: dict[str, Json], vocabulary: Vocabulary) -> tuple[int, ...]:
    ids, text = body.get("input_ids"), body.get("text")
    if (ids is None) == (text is None):
        raise refusal("input_ids, text", "one of both", "both" if ids is not None else None)
    if ids is None:
        if not isinstance(text, str) or not text:
            raise refusal("text", "a string that is not empty (one prompt a request)", text)
        return tuple(vocabulary.encode_rendered(text))
    if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
        raise refusal("input_ids", "a list of whole numbers (one prompt a request)", ids)
    if not 0 <= min(ids) <= max(ids) < vocabulary.size:
        raise refusal("input_ids", f"ids from 0 to {vocabulary.size - 1}", max(ids, key=abs))
    return tuple(ids)
