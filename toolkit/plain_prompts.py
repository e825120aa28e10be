"""Prompts of plain messages, put together from what their renderer gives for each role, in a third of the time.

Most prompts are texts of users and systems and nothing else. Some templates render such a message by itself, whatever
stands around it, and its text apart from their own: then a prompt is the ids of its messages, one behind the other, and
those of the beginning of an answer. `PIECEWISE` names the renderers whose source says so, and even these are held
against the renderer itself before any prompt is made this way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toolkit.assembly import Stretches, packed, unpacked
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
"""A text, in which special tokens may be spelled → ids."""


@dataclass(frozen=True, slots=True)
class PlainPrompts:
    """What plain prompts are made of, for one renderer and mode.

    Attributes:
        heads: Role → packed ids before a text.
        close: Packed ids behind each text.
        answer: Packed ids with which an answer begins.
    """

    heads: Mapping[str, bytes]
    close: bytes
    answer: bytes

    def lay_out(self, messages: Sequence[Mapping[str, Json]]) -> Stretches | None:
        """The texts of a prompt, each to be encoded by itself, and the ids between them; None where a message is more
        than a role and a text, or there is none.
        """
        pieces: list[str | bytes] = []
        for message in messages:
            text = message.get("content")
            # Compared by type: a role may be anything that JSON can say, and not all of it can be looked up.
            if type(text) is not str or message.keys() != _FIELDS or type(message["role"]) is not str:
                return None
            head = self.heads.get(message["role"])
            if head is None:
                return None
            pieces += (head, text, self.close)
        return [*pieces, self.answer] if pieces else None


def plain_prompts(name: str | None, render: Render, encode: Encode) -> PlainPrompts | None:
    """A way to make plain prompts in the place of `render`; None where it may give other ids.

    Args:
        name: The renderer's.
        render: The renderer.
        encode: How it encodes a text; it is not asked for the ids of "".

    Raises:
        Whatever `render` and `encode` raise.
    """
    if name not in PIECEWISE:
        return None
    framed = {role: render([{"role": role, "content": ""}], False) for role in _ROLES}
    whole = render([{"role": "user", "content": ""}], True)
    close, answer = packed(framed["user"][-1:]), packed(whole[len(framed["user"]) :])
    made = PlainPrompts({role: packed(ids[:-1]) for role, ids in framed.items()}, close, answer)
    for probe in _PROBES:
        messages: list[dict[str, Json]] = [{"role": role, "content": text} for role, text in probe]
        if _ids_of(made.lay_out(messages) or (), encode) != render(messages, True):
            return None
    return made


def _ids_of(pieces: Stretches, encode: Encode) -> list[int]:
    ids: list[int] = []
    for piece in pieces:
        if piece:
            ids += encode(piece) if isinstance(piece, str) else unpacked(piece).tolist()
    return ids
