"""The formats of strings that the broker checks itself, as regular expressions that run in linear time.

Sources: reference common#dates, schemas#violation-texts. As patterns they run inside the compiled validator, without a
call into Python.
"""

import re

from rioni.domain.timestamps import DATE_TIME


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
"""What a schema's `format` is turned into."""

MESSAGES = {
    DATE_TIME: "must be a valid date-time such as 2024-01-02T03:04:05.123Z",
    _CURRENCY: "must be a valid iso-4217 currency code such as EUR",
}
"""Error texts for values that do not match these patterns."""

_UUID = re.compile(UUID[1:-1])


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID in the usual spelling."""
    return _UUID.fullmatch(text) is not None
