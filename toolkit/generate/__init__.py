"""Asking a model: every prompt once, every paid reply kept.

`plan` says what is to be asked, `openrouter` makes the request's body, `client` (the only one that imports aiohttp)
carries it, `outcome` judges what came, `retry` says how long to wait, `commit` brings replies to the disk before they
are counted, `seal` turns the journal into shards, `summary` tells what came of it, and `run` holds them together.
"""
