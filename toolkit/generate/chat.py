"""An ask as OpenAI's chat completions, with OpenRouter's fields or those of engines that return ids. Pure."""

from __future__ import annotations

from toolkit.config import EndpointSettings
from toolkit.contract import Contract, Mode
from toolkit.errors import PermanentError
from toolkit.generate.plan import Planned
from toolkit.generate.transport import Request
from toolkit.records import SOURCES_WITH_IDS, Json, Source
from toolkit.wire import dump_json


class Chat:
    """Asks one endpoint by POST …/chat/completions."""

    form = "openai"

    def __init__(self, endpoint: EndpointSettings, contract: Contract):
        self._endpoint = endpoint
        self._contract = contract

    def request_of(self, ask: Planned) -> Request:
        """The request; see `WireFormat`."""
        sent = body_of(ask, self._endpoint, self._contract)
        url = f"{self._endpoint.url}/chat/completions"
        return Request(url=url, body=dump_json(sent).encode(), sent=sent, form=self.form)


def body_of(ask: Planned, endpoint: EndpointSettings, contract: Contract) -> dict[str, Json]:
    """The body to send.

    `models`, `stop`, `n` and whatever else would let another question be answered are never part of it.

    Raises:
        PermanentError: mode and sampling contradict each other (`mode_contradicted`).
    """
    body: dict[str, Json] = {"model": ask.model, "messages": ask.messages}
    if ask.tools:
        body["tools"] = ask.tools
    body[endpoint.max_tokens_field] = ask.max_tokens
    body |= sampling_of(ask)
    body |= mode_fields(contract.mode(ask.mode), endpoint.source)
    body["stream"] = endpoint.stream
    body |= _reply_fields(endpoint)
    if endpoint.source == Source.OPENROUTER:
        body |= _openrouter_fields(endpoint)
        _join_effort(body, ask.mode)
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


def _reply_fields(endpoint: EndpointSettings) -> dict[str, Json]:
    """What the reply shall tell beside the text."""
    fields: dict[str, Json] = {}
    if endpoint.ids != "off":
        fields["return_token_ids"] = True
    if endpoint.logprobs:
        fields["logprobs"] = True
        if endpoint.top_logprobs is not None:
            fields["top_logprobs"] = endpoint.top_logprobs
    if endpoint.user is not None:
        fields["user"] = endpoint.user
    if endpoint.stream and endpoint.source != Source.OPENROUTER:
        # OpenRouter always sends the usage; of others a stream has none unless it is asked for.
        fields["stream_options"] = {"include_usage": True}
    return fields


def _openrouter_fields(endpoint: EndpointSettings) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    routing = endpoint.provider.as_json()
    if routing:
        fields["provider"] = routing
    if endpoint.session_id is not None:
        fields["session_id"] = endpoint.session_id
    # On by default for small contexts, and it edits the prompt.
    fields["plugins"] = [{"id": "context-compression", "enabled": False}]
    return fields


def _join_effort(body: dict[str, Json], mode: str) -> None:
    """Put the effort where the switch of the mode is: beside each other they might say two things."""
    effort, reasoning = body.pop("reasoning_effort", None), body.get("reasoning")
    if effort is None:
        return
    switch = reasoning if isinstance(reasoning, dict) else {}
    if switch.get("enabled") is False or reasoning is None:
        raise PermanentError(
            f"sampling.reasoning_effort: expected none in the mode {mode!r}, which does not think, found {effort!r}",
            reason="mode_contradicted",
        )
    body["reasoning"] = {key: value for key, value in switch.items() if key != "enabled"} | {"effort": effort}
