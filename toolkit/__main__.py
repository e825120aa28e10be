"""`python -m toolkit` is `tokenproof`."""

from toolkit.cli import main

main()
