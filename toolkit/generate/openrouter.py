"""The request of an ask, in the form of OpenAI's chat completions with OpenRouter's fields. Pure."""

from __future__ import annotations

from toolkit.config import EndpointSettings, Secret
from toolkit.contract import Contract, Mode
from toolkit.generate.plan import Planned
from toolkit.records import SOURCES_WITH_IDS, Json, Source


def chat_url(endpoint: EndpointSettings) -> str:
    """Where completions are asked for."""
    return f"{endpoint.url}/chat/completions"


def headers_of(key: Secret | None) -> dict[str, str]:
    """Headers of every request. The key stands here and nowhere else."""
    headers = {"Content-Type": "application/json"}
    return headers if key is None else headers | {"Authorization": f"Bearer {key.reveal()}"}


def body_of(ask: Planned, endpoint: EndpointSettings, contract: Contract) -> dict[str, Json]:
    """The body to send.

    `models`, `stop`, `n` and whatever else would let another question be answered are never part of it.
    """
    body: dict[str, Json] = {"model": ask.model, "messages": ask.messages}
    if ask.tools:
        body["tools"] = ask.tools
    body[endpoint.max_tokens_field] = ask.max_tokens
    body |= sampling_of(ask)
    body |= mode_fields(contract.mode(ask.mode), endpoint.source)
    body["stream"] = endpoint.stream
    routing = endpoint.provider.as_json()
    if routing:
        body["provider"] = routing
    if endpoint.source == Source.OPENROUTER:
        # On by default for small contexts, and it edits the prompt.
        body["plugins"] = [{"id": "context-compression", "enabled": False}]
    return body | endpoint.extra


def sampling_of(ask: Planned) -> dict[str, Json]:
    """Sampling fields. With a seed, answer i is asked for with seed + i: else all answers would be the same."""
    sampling = dict(ask.sampling)
    if isinstance(sampling.get("seed"), int):
        sampling["seed"] += ask.sample_index
    return sampling


def mode_fields(mode: Mode, source: str) -> dict[str, Json]:
    """How this kind of server is told the mode: the engines take options of the chat template instead."""
    if source in SOURCES_WITH_IDS:
        return {"chat_template_kwargs": mode.renderer_options} if mode.renderer_options else {}
    return dict(mode.request)
