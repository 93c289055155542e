"""Generations of the read models: tables beside the live ones, folded from the same log, that can take their place."""
