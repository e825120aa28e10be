"""Audited datasets → one train set: `merge`, and why it leaves a row out."""

from toolkit.manifest import render_manifest
from toolkit.merge.run import merge
from toolkit.merge.selection import Dropped

__all__ = ["Dropped", "merge", "render_manifest"]
