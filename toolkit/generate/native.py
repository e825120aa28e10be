"""An ask as SGLang's native POST /generate: prompt ids in, output ids out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from toolkit.config import EndpointSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, PermanentError
from toolkit.generate.chat import sampling_of
from toolkit.generate.plan import Planned
from toolkit.generate.transport import Request
from toolkit.prompt import PromptRenderer
from toolkit.records import Json
from toolkit.rows import hash_of_ids
from toolkit.vocabulary import Vocabulary
from toolkit.wire import dump_json

_SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"}
)
"""Sampling fields that `sampling_params` knows under the same name."""


class Native:
    """Asks one endpoint by POST /generate.

    No `rid` is sent: the server refuses one that is still in flight, which after a broken connection would make a
    final failure of a try that only came too early. It makes its own, which the reply names.
    """

    form = "sglang"

    def __init__(self, endpoint: EndpointSettings, contract: Contract, vocabulary: Vocabulary):
        if contract.prompt.renderer is None:
            raise ConfigError(
                f'endpoint {endpoint.name}: api = "generate" needs prompts as ids, and contract {contract.name} '
                'names no renderer; expected api = "chat"'
            )
        self._endpoint = endpoint
        self._prompts = PromptRenderer(contract, vocabulary)
        self._url = f"{server_of(endpoint.url)}/generate"

    def request_of(self, ask: Planned) -> Request:
        """The request; see `WireFormat`.

        Raises:
            PermanentError: the prompt has no ids (`prompt_unrenderable`), or a sampling field has no counterpart
                (`sampling_unsupported`).
        """
        params = sampling_params(ask, self._endpoint)
        rendered = self._prompts.render(ask.messages, ask.tools, ask.mode)
        if rendered.ids is None:
            notes = ", ".join(rendered.notes)
            raise PermanentError(
                f"expected a prompt that can be rendered in the mode {ask.mode!r}, found {notes}",
                reason="prompt_unrenderable",
            )
        body = {"input_ids": rendered.ids, "sampling_params": params, "stream": self._endpoint.stream}
        return Request(url=self._url, body=dump_json(body).encode(), sent=without_ids(body), form=self.form)


def sampling_params(ask: Planned, endpoint: EndpointSettings) -> dict[str, Json]:
    """SGLang's `sampling_params` of an ask. Stop ids are left to the server, which knows the model's.

    Raises:
        PermanentError: a sampling field has no counterpart (`sampling_unsupported`).
    """
    params: dict[str, Json] = {"max_new_tokens": ask.max_tokens}
    for key, value in sampling_of(ask).items():
        name = endpoint.seed_field if key == "seed" else key if key in _SAMPLING else None
        if name is None:
            hint = "; the endpoint's option seed_field names what takes it" if key == "seed" else ""
            raise PermanentError(
                f"sampling.{key}: expected one of {', '.join(sorted(_SAMPLING))} for /generate, found {key}{hint}",
                reason="sampling_unsupported",
            )
        params[name] = value
    # The text is held against the ids, so it shall show what was sampled, and nothing between.
    return params | {"skip_special_tokens": False, "spaces_between_special_tokens": False}


def without_ids(body: Mapping[str, Json]) -> dict[str, Json]:
    """A body as the row keeps it: prompt ids can be rendered again, and their hash says whether they are the same."""
    ids = body["input_ids"]
    kept = {key: value for key, value in body.items() if key != "input_ids"}
    return {"input_ids_sha256": hash_of_ids(ids), "n_input_ids": len(ids), **kept}


def server_of(url: str) -> str:
    """The root of a server whose OpenAI face stands at /v1: the native API has no such prefix."""
    return url.removesuffix("/v1") if urlsplit(url).path.endswith("/v1") else url
