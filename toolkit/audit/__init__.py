"""The audit: measure every row, hold the facts against suites, and say in a verdict whether the gate opens."""
