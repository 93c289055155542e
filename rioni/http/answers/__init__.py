"""Answers that clients may not read: what they hold of the memory of a worker."""
