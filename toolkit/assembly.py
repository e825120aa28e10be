"""A rebuild in two steps: a plan, which says what the ids are made of, and the ids themselves. Pure.

Encoding is most of the work, and twice as fast where nothing else comes between: so the texts of many plans are
encoded one after the other, and each plan is put together then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from toolkit.records import IdsSource, RebuildStatus, ToolCall

Ids32 = npt.NDArray[np.int32]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say about one reply, before anything is encoded.

    Attributes:
        stretches: What the output ids are made of, texts to encode and ids; None where no rule gives them.
        kept: Ids that came, and are kept whatever the stretches give; None where none came.
        compared: Whether `assemble` is to note how what came stands to the stretches.
        source: Where the ids come from; None without ids.
        status: See `RebuildStatus`.
        notes: Codes of everything that was noticed or assumed.
        reasoning: The reply's, or what stood before a separator in the content.
        content: The reply's, without a terminal, separator or tool section that the rules took out.
        tool_calls: The reply's, or those of the tool section in the content.
    """

    stretches: tuple[str | list[int], ...] | None
    kept: list[int] | None = None
    compared: bool = False
    source: IdsSource | None
    status: RebuildStatus
    notes: tuple[str, ...]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]

    @property
    def texts(self) -> list[str]:
        """The texts to encode, in order."""
        return [stretch for stretch in self.stretches or () if isinstance(stretch, str)]


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say about one reply.

    Attributes:
        array: The output ids as they came, or as an array where they were rebuilt; None where no rule gives them.
        source: Where they come from; None without ids.
        status: See `RebuildStatus`.
        notes: Codes of everything that was noticed or assumed.
        reasoning: See `Plan`, as the next two.
    """

    array: Ids32 | list[int] | None
    source: IdsSource | None
    status: RebuildStatus
    notes: tuple[str, ...]
    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]

    @property
    def ids(self) -> list[int] | None:
        """The output ids as a list, which takes ten times the room."""
        return self.array.tolist() if isinstance(self.array, np.ndarray) else self.array


def assemble(plan: Plan, encoded: Iterable[npt.NDArray[np.uint32]]) -> Rebuilt:
    """The ids of a plan, from those of its `texts` in their order."""
    array = None if plan.stretches is None else put_together(plan.stretches, encoded)
    notes = plan.notes
    if plan.compared:
        notes = (*notes, "given_unchecked" if array is None else _compared(array, plan.kept or []))
    return Rebuilt(
        array=array if plan.kept is None else plan.kept,
        source=plan.source,
        status=plan.status,
        notes=notes,
        reasoning=plan.reasoning,
        content=plan.content,
        tool_calls=plan.tool_calls,
    )


def put_together(stretches: Sequence[str | list[int]], encoded: Iterable[npt.NDArray[np.uint32]]) -> Ids32:
    """Ids behind each other, those of the texts taken from `encoded`."""
    left = iter(encoded)
    parts = [
        next(left).view(np.int32) if isinstance(stretch, str) else np.array(stretch, dtype=np.int32)
        for stretch in stretches
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _compared(rebuilt: Ids32, given: list[int]) -> str:
    return "given_equal" if rebuilt.tolist() == given else "given_differs"
