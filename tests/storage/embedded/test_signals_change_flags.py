"""Flags that say what has changed."""

import os

from rioni.storage.embedded.signals import SharedChangeFlags


def test_flags_are_raised_until_they_are_taken():
    flags = SharedChangeFlags()
    assert list(flags.take()) == []
    for name in ("a", "b", "a"):
        flags.raise_flag(name)
    assert sorted(flags.take()) == sorted([flags.flag_of("a"), flags.flag_of("b")])
    assert list(flags.take()) == []
    flags.raise_flag("b")
    assert list(flags.take()) == [flags.flag_of("b")]


def test_a_forked_process_raises_the_flags_of_its_parent():
    flags = SharedChangeFlags()
    child = os.fork()
    if not child:
        flags.raise_flag("of the child")
        os._exit(0)
    os.waitpid(child, 0)
    assert list(flags.take()) == [flags.flag_of("of the child")]
