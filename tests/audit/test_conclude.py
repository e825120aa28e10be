"""What importing Great Expectations does to the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_TWO_IMPORT = """
import gc, sys, threading
from toolkit.audit.conclude import import_gx
{before}
threads = [threading.Thread(target=import_gx) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
    assert "toolkit.audit.gx.build" in sys.modules
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.parametrize(("before", "collecting"), [("", True), ("gc.disable()", False)])
def test_garbage_is_looked_for_afterwards_where_it_was_before(before: str, collecting: bool) -> None:
    code = _TWO_IMPORT.format(before=before)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [str(collecting), "True"]
