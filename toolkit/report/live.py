"""Text that is replaced where it stands, on a terminal. rich is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def replaced_lines(stream: TextIO) -> Iterator[Callable[[Sequence[str]], None]]:
    """Show lines in place of those before; the last ones stay. Texts are never rich markup."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda lines: live.update(Text("\n".join(lines), overflow="crop", no_wrap=True), refresh=True)
