"""A rebuild in two steps: a plan, which says what the ids are made of, and the ids themselves. Pure.

Encoding is most of the work, and twice as fast where nothing else comes between: so the texts of many plans are
encoded one after the other, and each plan is put together then. Ids that were put together are packed: 4 bytes each, as
they lie in the memory of an array of 32 bits, which is what becomes of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from toolkit.records import IdsSource, RebuildStatus, ToolCall

Stretches = Sequence[str | bytes]
"""What ids are made of: texts, each of which is encoded by itself, and packed ids that stand between them."""

Encode = Callable[[list[str]], list[bytes]]
"""Texts → packed ids of each."""


_IDS_REMEMBERED = 1_024


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say about one reply, before anything is encoded.

    Attributes:
        stretches: What the output ids are made of; None where no rule gives them.
        kept: Ids that came, and are kept whatever the stretches give; None where none came.
        compared: Whether `assemble` is to note how what came stands to the stretches.
        source: Where the ids come from; None without ids.
        status: See `RebuildStatus`.
        notes: Codes of everything that was noticed or assumed.
        reasoning: The reply's, or what stood before a separator in the content.
        content: The reply's, without a terminal, separator or tool section that the rules took out.
        tool_calls: The reply's, or those of the tool section in the content.
    """

    stretches: Stretches | None
    kept: list[int] | None = None
    compared: bool = False
    source: IdsSource | None
    status: RebuildStatus
    notes: tuple[str, ...]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say about one reply.

    Attributes:
        output: The output ids as they came, or packed where they were rebuilt; None where no rule gives them.
        source: Where they come from; None without ids.
        status: See `RebuildStatus`.
        notes: Codes of everything that was noticed or assumed.
        reasoning: See `Plan`, as the next two.
    """

    output: bytes | list[int] | None
    source: IdsSource | None
    status: RebuildStatus
    notes: tuple[str, ...]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]

    @property
    def ids(self) -> list[int] | None:
        """The output ids as a list, which takes ten times the room."""
        return unpacked(self.output).tolist() if isinstance(self.output, bytes) else self.output


def assemble(plan: Plan, output: bytes | None) -> Rebuilt:
    """The outcome of a plan, from the packed ids of its stretches: None where it has none."""
    notes = plan.notes
    if plan.compared:
        notes = (*notes, "given_unchecked" if output is None else _compared(output, plan.kept or []))
    return Rebuilt(
        output=output if plan.kept is None else plan.kept,
        source=plan.source,
        status=plan.status,
        notes=notes,
        reasoning=plan.reasoning,
        content=plan.content,
        tool_calls=plan.tool_calls,
    )


def encode_together(laid_out: Sequence[Stretches | None], encode: Encode) -> list[bytes | None]:
    """Packed ids of several things, each made of its stretches; None of what is None.

    Raises:
        Whatever `encode` raises.
    """
    encoded = iter(encode([one for stretches in laid_out for one in stretches or () if isinstance(one, str)]))
    # Each takes as many of the texts' ids as it has texts, and leaves the rest to the next.
    return [
        None if stretches is None else b"".join([next(encoded) if isinstance(one, str) else one for one in stretches])
        for stretches in laid_out
    ]


def packed(ids: Sequence[int]) -> bytes:
    """Ids as an array of 32 bits has them in memory.

    Raises:
        OverflowError, TypeError: one is no whole number of 32 bits.
    """
    return array("i", ids).tobytes()


@lru_cache(_IDS_REMEMBERED)
def packed_id(token_id: int) -> bytes:
    """`packed` of one id: a contract has few of them, and every row some."""
    return packed([token_id])


def unpacked(ids: bytes) -> npt.NDArray[np.int32]:
    """Packed ids as an array over their memory."""
    return np.frombuffer(ids, dtype=np.int32)


def _compared(rebuilt: bytes, given: list[int]) -> str:
    return "given_equal" if unpacked(rebuilt).tolist() == given else "given_differs"
