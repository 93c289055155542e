"""Limits and costs of untrusted regular expressions, in schemas and in filters.

Expressions run in linear time, but where the engine has to follow many states at once each character costs as much as
the expression is long: 48 seconds for 900 kB against `((a{1,100}){1,50})x$`. How often that happens can't be derived
from an expression, so its users bound the product.
"""

import jsonschema_rs


PATTERN_BYTES_MAX = 1024
PATTERNS_MAX = 128
"""Different patterns in one schema."""
PATTERNS_BYTES_MAX = 32 * 1024
"""All of these together."""
PROGRAMS_BYTES_MAX = 12_000_000
"""All of them compiled; one may take a quarter of it. PERF: three thousand like `((a{1,100}){1,50})`, 130 kB, took 7 s
and 2.8 GB."""
DFA_BYTES_MIN = 2**16
"""With less the library's engine would hardly ever get along without following each state by itself."""
STATE_NS = 0.15
"""PERF: for each byte of a compiled expression, a character takes that long at worst."""
COMPILED_BYTES_MIN = 10_000
"""PERF: memory of the engine for one expression, however small its program is."""
COMPILED_COPIES = 2
"""PERF: memory for one expression in programs, compiled and once more while it runs."""
_TRIALS = tuple(1 << power for power in range(10, 25))


def options_for(patterns: int) -> jsonschema_rs.RegexOptions:
    """How each of so many patterns is compiled: they share the memory for all."""
    return pattern_options(PROGRAMS_BYTES_MAX // max(patterns, 4))


def pattern_options(bytes_max: int) -> jsonschema_rs.RegexOptions:
    """Let patterns run in linear time, and take no more memory than that, compiled and once more while they run."""
    return jsonschema_rs.RegexOptions(size_limit=bytes_max, dfa_size_limit=max(bytes_max, DFA_BYTES_MIN))


def program_bytes(pattern: str) -> int:
    """The size of a compiled expression, rounded up to a power of two."""
    for size in _TRIALS:
        try:
            jsonschema_rs.Draft4Validator({"pattern": pattern}, pattern_options=pattern_options(size))
        except ValueError:
            continue
        return size
    return _TRIALS[-1]


def compiled_bytes(patterns: int, programs_bytes: int) -> int:
    """An estimate of the memory that so many compiled expressions take, whose programs have so many bytes together."""
    return COMPILED_BYTES_MIN * patterns + COMPILED_COPIES * programs_bytes
