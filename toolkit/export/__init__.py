"""A train set in the form that a trainer reads, ids and masks untouched; and what that trainer will make of it."""
