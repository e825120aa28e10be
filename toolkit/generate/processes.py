"""Which process wrote something, so that it can be told later whether that one still runs.

A pid alone does not say it: after the process is gone, another may get the same. Linux tells when a process began,
counted from the boot, and names the boot.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

_PROC = Path("/proc")
_STARTED = 22 - 3
"""Field 22 of /proc/PID/stat is when it began (proc(5)); the first two stand before the last parenthesis."""


def host_name() -> str:
    """This machine, as a status names it; empty where the system does not say."""
    return platform.node()


def mark_of(pid: int) -> str | None:
    """What sets this process apart from any other that had or will have its pid; None where nothing is known of it.

    Returns:
        `BOOT/TICKS`: the id of this boot, and when the process began.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    if len(fields) <= _STARTED or fields[0] in ("Z", "X"):
        # A zombie has ended; only its parent has not asked yet.
        return None
    return f"{boot}/{fields[_STARTED]}"


def is_running(pid: int, mark: str) -> bool | None:
    """Whether that very process runs on this machine; None where the system does not tell.

    Args:
        pid: Its number.
        mark: What `mark_of` said of it; empty: not known.
    """
    if not 0 < pid < 2**31:
        return False
    if _PROC.joinpath("self/stat").exists():
        found = mark_of(pid)
        if found is None:
            return False
        return found == mark if mark else None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return None
