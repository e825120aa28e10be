"""Everything that knows Great Expectations: which of it a suite may use, and how a suite is evaluated.

`columns` and `conditions` are pure and light; Great Expectations and pandas are imported inside
functions of `build` and `evaluate`, since their import takes seconds.
"""
