"""How memory is freed while thousands of requests are in flight."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (300_000, 20, 20)
"""So many more objects than at the last search, and the next begins: at 100,000 it would be a twentieth of a run."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Leave alone what is there already, and look for unreachable cycles among new objects now and then.

    Each request is some hundred young objects, so that the collector of Python's own choice looks through all of them,
    and through the vocabulary, many times a second: a third of the time of a run. What is freed by counting references
    stays as it is; cycles are few, and are still looked for.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
