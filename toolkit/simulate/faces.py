"""A request's bytes to the reply it gets, by face: read, enter the books, play, or refuse. No sockets."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from toolkit.errors import PermanentError
from toolkit.records import Json
from toolkit.simulate import chat, native, openrouter
from toolkit.simulate.asked import read_request
from toolkit.simulate.behaviours import Face
from toolkit.simulate.refusals import Refusal, engine_refusal, error_body
from toolkit.simulate.sending import Sending, sent
from toolkit.simulate.simulation import Simulation, Turn, key_of


def reply_to(simulation: Simulation, turn: Turn, body: bytes) -> Sending:
    """The reply to `body` at the face that `turn` was opened for."""
    return _PLAYS[turn.entry.face](simulation, turn, body)


def _openrouter(simulation: Simulation, turn: Turn, body: bytes) -> Sending:
    try:
        asked = read_request(_decoded(body), simulation.contract)
        key = key_of(asked)
        turn.receive(asked, key)
        return openrouter.play(simulation, turn, asked, key)
    except PermanentError as error:
        status = error.status or 400
        return sent(Refusal(status=status, body=error_body(status, str(error))))


def _chat(simulation: Simulation, turn: Turn, body: bytes) -> Sending:
    try:
        asked = read_request(_decoded(body), simulation.contract)
        key = key_of(asked)
        turn.receive(asked, key)
        return chat.play(simulation, turn, asked, key)
    except PermanentError as error:
        return sent(engine_refusal(400, str(error), flat=simulation.scenario.engine == "sglang"))


def _native(simulation: Simulation, turn: Turn, body: bytes) -> Sending:
    decoded: Json = None
    try:
        decoded = _decoded(body)
        wanted = native.read_generate(decoded, simulation.vocabulary)
        asked = native.asked_of(wanted, simulation.contract, simulation.vocabulary)
        key = native.prompt_ids_key(wanted.prompt_ids)
        turn.receive(asked, key)
        return native.play(simulation, turn, wanted, asked, key)
    except PermanentError as error:
        return native.refused(error, decoded) or sent(engine_refusal(400, str(error), flat=True))


_PLAYS: dict[Face, Callable[[Simulation, Turn, bytes], Sending]] = {
    "openrouter": _openrouter,
    "chat": _chat,
    "sglang": _native,
}


def _decoded(body: bytes) -> Json:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise PermanentError(f"the body: expected JSON: {error}", reason="invalid_request", status=400) from None
