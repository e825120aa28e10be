"""Prompts of plain messages, put together from what their renderer gives for each role, in a third of the time.

Most prompts are texts of users and systems and nothing else. Some templates render such a message by itself, whatever
stands around it, and its text apart from their own: then a prompt is the ids of its messages, one behind the other, and
those of the beginning of an answer. `PIECEWISE` names the renderers whose source says so, and even these are held
against the renderer itself before any prompt is made this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toolkit.records import Json

PIECEWISE = frozenset({"kimi-k2.5"})
"""Renderers that render messages one by one, with each text encoded by itself."""

_ROLES = ("system", "user")
_FIELDS = {"role", "content"}
_PROBES = (
    (("user", "Say hi"),),
    (("user", ""),),
    (("system", "Be brief."), ("user", "a\n\nb ")),
    (("user", " x"), ("user", "x\t"), ("system", "<|im_end|>"), ("user", "é漢字")),
    (("system", "  "), ("system", "0"), ("user", "\n"), ("user", "<think>")),
)
"""Conversations on which a renderer must agree, texts that begin and end in white space and special tokens included."""

Render = Callable[[list[dict[str, Json]], bool], list[int]]
"""(messages, with the beginning of an answer) → ids."""
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class PlainPrompts:
    """Makes ids of plain prompts for one renderer and mode.

    Attributes:
        heads: Role → ids before a text.
        close: Ids behind each text.
        answer: Ids with which an answer begins.
        encode: Ids of a text; it is not asked for those of "".
    """

    heads: Mapping[str, Sequence[int]]
    close: Sequence[int]
    answer: Sequence[int]
    encode: Encode

    def ids_of(self, messages: Sequence[Mapping[str, Json]]) -> list[int] | None:
        """Ids of a prompt; None where a message is more than a role and a text, or there is none.

        Raises:
            Whatever `encode` raises.
        """
        ids: list[int] = []
        for message in messages:
            text = message.get("content")
            # Compared by type: a role may be anything that JSON can say, and not all of it can be looked up.
            if type(text) is not str or message.keys() != _FIELDS or type(message["role"]) is not str:
                return None
            head = self.heads.get(message["role"])
            if head is None:
                return None
            ids += head
            if text:
                ids += self.encode(text)
            ids += self.close
        if not ids:
            return None
        ids += self.answer
        return ids


def plain_prompts(name: str | None, render: Render, encode: Encode) -> PlainPrompts | None:
    """A way to make plain prompts in the place of `render`; None where it may give other ids.

    Args:
        name: The renderer's.
        render: The renderer.
        encode: How it encodes a text.

    Raises:
        Whatever `render` and `encode` raise.
    """
    if name not in PIECEWISE:
        return None
    framed = {role: render([{"role": role, "content": ""}], False) for role in _ROLES}
    whole = render([{"role": "user", "content": ""}], True)
    close, answer = framed["user"][-1:], whole[len(framed["user"]) :]
    heads = {role: ids[:-1] for role, ids in framed.items()}
    made = PlainPrompts(heads, close, answer, encode)
    for probe in _PROBES:
        messages: list[dict[str, Json]] = [{"role": role, "content": text} for role, text in probe]
        if made.ids_of(messages) != render(messages, True):
            return None
    return made
