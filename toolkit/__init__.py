"""Tokenproof: prove that token ids are the ids the model produced, before the merge."""

__version__ = "0.6.0"
