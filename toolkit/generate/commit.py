"""Group commit: a record is on the disk before whoever wrote it goes on, and one fdatasync serves many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolkit.errors import StoreError
from toolkit.records import Entry, Failure
from toolkit.store.journal import LineWriter

_GATHER_S = 0.02
"""How long records gather: at thousands a second a flush for each would be most of the work."""


class GroupCommit:
    """Writes to several files, and flushes them together while further records gather."""

    def __init__(self, *writers: LineWriter):
        self._writers = writers
        self._waiting: list[asyncio.Future[None]] = []
        self._written = asyncio.Event()
        self._broken: StoreError | None = None

    async def write(self, writer: LineWriter, record: Entry | Failure) -> None:
        """Write one line; returns once it is on the disk.

        Raises:
            StoreError: it cannot be written, nor can anything after it.
        """
        await self.begin(writer, record)

    def begin(self, writer: LineWriter, record: Entry | Failure, body: bytes | None = None) -> asyncio.Future[None]:
        """Write one line, as `LineWriter.write` does; what is returned is done once it is on the disk.

        Raises:
            StoreError: as `write`.
        """
        if self._broken is not None:
            raise self._broken
        writer.write(record, body)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._written.set()
        return waiting

    async def flush_forever(self) -> None:
        """Flush what has gathered, again and again. A failed flush fails all who wait, and ends it."""
        while True:
            await self._written.wait()
            await asyncio.sleep(_GATHER_S)
            self._written.clear()
            batch, self._waiting = self._waiting, []
            try:
                # In a thread: the disk must not hold up two thousand connections.
                await asyncio.to_thread(self._flush)
            except StoreError as error:
                self._broken = error
                for waiting in (*batch, *self._waiting):
                    if not waiting.done():
                        waiting.set_exception(error)
                return
            for waiting in batch:
                if not waiting.done():
                    waiting.set_result(None)

    def _flush(self) -> None:
        for writer in self._writers:
            writer.flush()


@asynccontextmanager
async def group_commit(*writers: LineWriter) -> AsyncIterator[GroupCommit]:
    """A `GroupCommit` whose flushing runs inside the block."""
    commit = GroupCommit(*writers)
    flushing = asyncio.create_task(commit.flush_forever())
    try:
        yield commit
    finally:
        flushing.cancel()
        await asyncio.wait([flushing])
