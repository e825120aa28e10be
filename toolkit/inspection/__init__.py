"""What a report shows beside the verdict: distributions of the facts, and single rows id by id.

Everything is read from the files that an audit leaves, so a report can be written again without one.
"""
