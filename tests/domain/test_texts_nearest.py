"""The nearest of known names: one rule for all errors about names that are not known."""

import pytest

from rioni.domain.texts import nearest, proposal


LIKE = [
    ("prodution", "production"),
    ("orders", "order"),
    ("bgin", "begin"),
    ("tial", "tail"),
    ("audit lgo", "audit log"),
    ("PROD", "prod"),
    ("Größse", "grösse"),
    ("kpi_colection", "kpi_collection"),
    ("0x", "0"),
    ("shop.orders.createdq.v1", "shop.orders.created.v1"),
    ("shop.orders.crtaed.v1", "shop.orders.created.v1"),
    ("shp.orders.createdq", "shop.orders.created"),
    ("shop.orders.v2", "shop.orders.v1"),
    ("shop-orders.created", "shop.orders.created"),
    ("shoporders.created", "shop.orders.created"),
    ("shop.orders..created", "shop.orders.created"),
    ("order_Created", "order.created"),
    ("orders.created", "shop.orders.created"),
    ("shop.orders.created", "shop.orders.created.v1"),
    ("shop/billinx", "shop/billing"),
    ("038fc871-1d2c-4e2e-aa29-1579e8f2e71e", "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"),
    ("retention", "retention_time"),
]
UNLIKE = [
    ("", "prod"),
    ("zzz", "prod"),
    ("...", "---"),
    ("amount", "total_amount"),
    ("orders", "shop.orders"),
    ("shop.orders.cancelled.v1", "shop.orders.created.v1"),
    ("shop.orders.cancelled", "shop.orders.created.v1"),
    ("shop.orders.created", "shop.payments.created"),
    ("com.example.shop.a", "com.example.shop.b"),
    ("shop.orders.eu", "shop.orders.us"),
    ("shop.orders.created", "shop.orders"),
    ("shop", "shop.orders.created"),
    ("shop/billing", "shop/shipping"),
    ("warehouse/default", "shop/default"),
    ("1", "0"),
    ("1.0.1", "1.0.0"),
    ("prod", "production"),
    ("038fc871-1d2c-4e2e-aa29-1579e8f2e71f", "138fd872-2d2c-5e2e-ba29-2579e8f2e71f"),
]


@pytest.mark.parametrize(("name", "known"), LIKE)
def test_a_name_is_proposed_that_differs_in_few_letters_or_a_lesser_part(name, known):
    assert nearest(name, [known]) == known
    assert nearest(known, [name]) == name


@pytest.mark.parametrize(("name", "known"), UNLIKE)
def test_a_name_that_differs_in_what_it_is_about_is_not_proposed(name, known):
    assert nearest(name, [known]) is None
    assert nearest(known, [name]) is None


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("orders.createdq", ["orders.creates", "orders.created"], "orders.created"),
        ("orders.created", ["orders.created.v1", "order.created"], "order.created"),
        ("ordes", ["orders", "order"], "orders"),
        ("prod", [], None),
        ("prod", (each for each in ["test", "prods"]), "prods"),
    ],
)
def test_the_one_with_the_fewest_differences_is_proposed(name, known, found):
    assert nearest(name, known) == found


def test_the_last_of_many_is_found():
    known = [*(f"shop.orders.created.n{number}" for number in range(10_001)), "shop.orders.cancelled"]
    assert nearest("shop.orders.canceled", known) == known[-1]


def test_without_a_name_that_is_like_it_the_sentence_ends_otherwise():
    assert proposal("zzz", ["prod"], "; there are prod.") == "; there are prod."
    assert proposal("zzz", ["prod"]) == "."
    assert proposal("prd", ["prod"], "; there are prod.") == "; did you mean prod?"
