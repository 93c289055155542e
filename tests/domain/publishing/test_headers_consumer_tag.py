import pytest

from rioni.domain.errors import Invalid
from rioni.domain.publishing.headers import tagged_subscription


ID = "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"


@pytest.mark.parametrize(
    "header",
    [
        f"consumer_subscription_id={ID}",
        f"CONSUMER_SUBSCRIPTION_ID={ID.upper()}",
        f" Consumer_Subscription_Id = {ID} ",
        f"\tconsumer_subscription_id =\t{ID}",
    ],
)
def test_case_and_spaces_are_ignored(header):
    assert tagged_subscription(header) == ID


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        ("", "X-CONSUMER-TAG: is empty!"),
        ("  ", "X-CONSUMER-TAG: is empty!"),
        ("consumer_subscription_id", "header tag parameter is imbalanced, expected: 2 but provided 1"),
        (f"consumer_subscription_id={ID}=x", "header tag parameter is imbalanced, expected: 2 but provided 3"),
        (f"consumer_subscription_id={ID},", "header tag parameter is imbalanced, expected: 2 but provided 1"),
        (f"consumer={ID}", "invalid header tag: consumer"),
        (f"={ID}", "invalid header tag: "),
        (
            f"consumer_subscription_id={ID}, CONSUMER_SUBSCRIPTION_ID={ID}",
            "duplicate header tag: CONSUMER_SUBSCRIPTION_ID",
        ),
        ("consumer_subscription_id=x", "header tag value: x is not an UUID"),
        ("consumer_subscription_id=", "header tag value:  is not an UUID"),
    ],
)
def test_errors_in_the_tag_are_named(header, detail):
    with pytest.raises(Invalid) as refused:
        tagged_subscription(header)
    assert str(refused.value) == detail
