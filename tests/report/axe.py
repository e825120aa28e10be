"""axe-core, fetched once with npm into a cache folder; it is not part of this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.conftest import absent

VERSION = "4.10.3"


def axe_source() -> str:
    """The script to inject; the test is skipped, and says so, where npm or its registry cannot be reached."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tokenproof-tests"
    kept = cache / f"axe-{VERSION}.min.js"
    if not kept.is_file():
        npm = shutil.which("npm")
        if npm is None:
            absent("npm is missing: apt-get install npm")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [npm, "pack", "--silent", f"axe-core@{VERSION}"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
            )
            if done.returncode:
                absent(f"npm pack axe-core@{VERSION} failed: {done.stderr[-200:]}")
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                found = archive.extractfile("package/axe.min.js")
                assert found is not None
                temporary = kept.with_suffix(f".{os.getpid()}")
                temporary.write_bytes(found.read())
            temporary.replace(kept)
    return kept.read_text(encoding="utf-8")
