"""What people and CI read of a verdict: terminal, one HTML page, JUnit XML, a Markdown summary.

Every renderer is a pure function that takes a `Verdict` and returns a string; the caller prints or
writes it. `outcome` decides what is said (so that all four say the same), `text` makes what came from
models, servers and files safe to show.
"""
