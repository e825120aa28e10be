"""What of a contract says where an output's parts begin. Pure."""

from __future__ import annotations

from toolkit.contract import Contract
from toolkit.export.window import Marks


def marks_of(contract: Contract) -> Marks:
    """The ids that end thoughts and begin a tool section, and the modes whose outputs begin with thoughts."""
    end = contract.special.get(contract.think.end) if contract.think is not None else None
    return Marks(
        end_think=end,
        tools=None if contract.tools is None else contract.id_of(contract.tools.section_begin),
        thinking=frozenset(name for name, mode in contract.modes.items() if "{reasoning}" in mode.output),
    )
