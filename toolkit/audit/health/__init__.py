"""Text health: facts about what answers say, and findings that need a whole dataset. Warnings, not proof."""
