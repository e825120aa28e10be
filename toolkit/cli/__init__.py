"""The commands. Each reads its options, calls one stage, prints and exits; heavy imports wait until then."""

from toolkit.cli.main import audit_main, main

__all__ = ["audit_main", "main"]
