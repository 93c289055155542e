import pytest

from rioni.cli.doctor.connection import Access, BrokerAnswer, Certificate, Reach
from tests.support.doctor_cases import Cases, ago, check_healthy, check_sick, error, healthy, sick, warning


def certificate(**changes):
    members = {"not_before": ago(days=30), "not_after": ago(days=-60), "error": ""} | changes
    return Certificate("broker", "CN=broker", ["broker"], **members)


LOCAL = Reach("http://localhost:8080", answer=BrokerAnswer(0.01, 0.2), token=True)
CASES = {
    "reachable": Cases([[LOCAL]], [error("refused", Reach("http://x", error="http://x does not answer: refused"))]),
    "response-time": Cases([[BrokerAnswer(0.2)]], [warning("2.0 s", BrokerAnswer(2.0))]),
    "unencrypted": Cases(
        [[LOCAL], [Reach("http://broker.example.org")], [Reach("https://broker.example.org", token=True)]],
        [warning("without encryption", Reach("http://broker.example.org", token=True))],
    ),
    "clock": Cases(
        [[BrokerAnswer(0.1, 1.5)], [BrokerAnswer(0.1)]],
        [
            warning("10 s ahead", BrokerAnswer(0.1, 10.0)),
            error("3,600 s behind", BrokerAnswer(0.1, -3600.0)),
        ],
    ),
    "token": Cases(
        [[Access("0.1.1", "0.1.1")]],
        [
            error("401", Access("0.1.1", status=401, detail="Full authentication is required")),
            error("failed", Access("0.1.1", "0.1.1", token_error="The command `vault` failed.")),
        ],
    ),
    "version": Cases(
        [[Access("0.1.1", "0.1.0")], [Access("0.1.1", "")], [Access("0.1.1", "r2024-snapshot")]],
        [warning("0.2.0", Access("0.1.1", "0.2.0"))],
    ),
    "tls-certificate": Cases(
        [[certificate()]],
        [
            error("has expired", certificate(not_after=ago(days=1))),
            error("valid from", certificate(not_before=ago(days=-1))),
            warning("in 4 days", certificate(not_after=ago(days=-4.9))),
            error("Hostname mismatch", certificate(error="Hostname mismatch")),
        ],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_where_the_connection_is_healthy(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_wrong_with_the_connection_is_found(name, case):
    check_sick(name, case)
