"""Files: prompts, journals, shards, facts, verdicts. Everything is written whole or not at all."""
