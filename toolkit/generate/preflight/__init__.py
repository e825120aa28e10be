"""Before a run: whether prompts, settings, key, credit, providers and their answers are what the run needs."""
