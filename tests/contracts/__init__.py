"""Contracts that come with the tool, and one that a user would write."""
