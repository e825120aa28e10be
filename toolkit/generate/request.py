"""What one ask becomes on the wire. Pure: a format turns an ask into a `Request`, and names the form of its reply."""

from __future__ import annotations

from typing import Protocol

from toolkit.config import EndpointSettings, Secret
from toolkit.contract import Contract
from toolkit.generate.chat import Chat
from toolkit.generate.native import Native
from toolkit.generate.plan import Planned
from toolkit.generate.transport import Request
from toolkit.vocabulary import Vocabulary

__all__ = ["Request", "WireFormat", "headers_of", "wire_format"]


class WireFormat(Protocol):
    """How one endpoint is asked.

    Attributes:
        form: How its replies are read: a name of `toolkit.wire.FORMS`.
    """

    @property
    def form(self) -> str:
        """See the class."""
        ...

    def request_of(self, ask: Planned) -> Request:
        """The request of an ask; the same for each try.

        Raises:
            PermanentError: it cannot be asked in this format; nothing must be sent, and `Judge.of_unsent` makes a
                failure of it (`prompt_unrenderable`), or stops the run.
        """
        ...


def wire_format(endpoint: EndpointSettings, contract: Contract, vocabulary: Vocabulary) -> WireFormat:
    """The format in which an endpoint is asked. One serves all asks of a contract.

    Raises:
        ConfigError: the endpoint takes prompts as ids, and the contract's cannot be rendered.
    """
    if endpoint.api == "generate":
        return Native(endpoint, contract, vocabulary)
    return Chat(endpoint, contract)


def headers_of(endpoint: EndpointSettings, key: Secret | None) -> dict[str, str]:
    """Headers of every request, POST or GET. The key stands here and nowhere else."""
    headers = {"Content-Type": "application/json"}
    if endpoint.referer is not None:
        headers["HTTP-Referer"] = endpoint.referer
    if endpoint.title is not None:
        headers["X-Title"] = endpoint.title
    return headers if key is None else headers | {"Authorization": f"Bearer {key.reveal()}"}
