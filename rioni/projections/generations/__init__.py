"""Generations of the read models: copies of the live tables, folded from the same log, that can replace them."""
