"""Regular expressions: those of the formats of strings that the broker checks, and the costs of untrusted ones."""

import re

import jsonschema_rs

from rioni.domain.timestamps import DATE_TIME


# --- The formats of strings that the broker checks itself, as regular expressions that run in linear time ---
#
# Sources: reference common#dates, schemas#violation-texts. As patterns they run inside the compiled validator, without
# a call into Python.

UUID = "^[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}$"
"""An event's id, in the only spelling that is accepted."""


CURRENCIES = frozenset(
    (  # noqa: SIM905 - a list of 180 lines reads worse
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD "
        "CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS "
        "GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD "
        "KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK "
        "NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP "
        "STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST "
        "XAF XAG XAU XBA XBB XBC XBD XCD XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG "
    ).split()
)
"""The active alphabetic codes of ISO 4217."""

_CURRENCY = f"^(?:{'|'.join(sorted(CURRENCIES))})$"

PATTERNS = {"date-time": DATE_TIME, "iso-4217": _CURRENCY, "ISO-4217": _CURRENCY}
"""The patterns that replace a schema's `format`."""

MESSAGES = {
    DATE_TIME: "must be a valid date-time such as 2024-01-02T03:04:05.123Z",
    _CURRENCY: "must be a valid iso-4217 currency code such as EUR",
}
"""Error texts for values that do not match these patterns."""

_UUID = re.compile(UUID[1:-1])


def cut(text: str, characters_max: int) -> str:
    """The beginning of a text, with three dots if there is more."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID in the usual spelling."""
    return _UUID.fullmatch(text) is not None


# --- Limits and costs of untrusted regular expressions, in schemas and in filters ---
#
# Expressions run in linear time, but if the engine has to follow many states at once, each character costs as much as
# the expression is long: 48 seconds for 900 kB against `((a{1,100}){1,50})x$`. How often that happens can't be derived
# from an expression, so its users bound the product.

PATTERN_BYTES_MAX = 1024
PATTERNS_MAX = 128
"""The maximum number of different patterns in one schema."""
PATTERNS_BYTES_MAX = 32 * 1024
"""The maximum size of all patterns in one schema together."""
PROGRAMS_BYTES_MAX = 12_000_000
"""The maximum size of all patterns together, compiled; one may take a quarter of it. PERF: three thousand like
`((a{1,100}){1,50})`, 130 kB, took 7 s and 2.8 GB."""
DFA_BYTES_MIN = 2**16
"""The minimum memory for the library's engine: with less it would mostly follow each state by itself."""
STATE_NS = 0.15
"""PERF: the time that a character takes at worst, for each byte of a compiled expression."""
COMPILED_BYTES_MIN = 10_000
"""PERF: memory of the engine for one expression, however small its program is."""
COMPILED_COPIES = 2
"""PERF: memory for one expression in programs, compiled and once more while it runs."""
_TRIALS = tuple(1 << power for power in range(10, 25))


def options_for(patterns: int) -> jsonschema_rs.RegexOptions:
    """The options for compiling each of `patterns` patterns, which share the memory limit."""
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
    """Estimate the memory of compiled expressions from their number and the total size of their programs."""
    return COMPILED_BYTES_MIN * patterns + COMPILED_COPIES * programs_bytes
