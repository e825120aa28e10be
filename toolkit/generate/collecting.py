"""Python's search for unreachable cycles, while thousands of requests are in flight.

Each of them is some hundred young objects, so that the collector of Python's own choice looks through all of them,
and through the vocabulary, many times a second: a third of the time of a run. What is freed by counting references
stays as it is; cycles are few, and are still looked for.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (100_000, 20, 20)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Leave alone what is there already, and look for cycles among new objects now and then."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
