from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.publishing.partitioning import (
    PartitionError,
    at_random,
    by_hash,
    by_publisher,
    java_hash,
    key_text,
    ordered_partitions,
)
from rioni.domain.schemas.field_path import FieldPath, parse_path
from tests.support.strategies import json_values


def naive_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for index in range(0, len(units), 2):
        number = 31 * number + int.from_bytes(units[index : index + 2])
    return number % 2**32


@pytest.mark.parametrize(("text", "number"), [("", 0), ("a", 97), ("Hello", 69609650), ("\U0001f600", 1772899)])
def test_hashes_are_as_in_java(text, number):
    """Reference publishing#hash-examples."""
    assert java_hash(text) % 2**32 == number


@given(
    st.text() | st.text(st.characters(codec="ascii"), min_size=60, max_size=600) | st.text(min_size=60, max_size=300)
)
def test_hashes_agree_with_the_definition(text):
    """Reference publishing#hash-strategy."""
    assert java_hash(text) % 2**32 == naive_hash(text)


def partition_of(keys, partitions):
    paths = [FieldPath((str(index),)) for index in range(len(keys))]
    return by_hash(paths, partitions)({str(index): key for index, key in enumerate(keys)})


MINIMUM = "polygenelubricants"
"""A key whose hash is the smallest 32-bit integer."""


@pytest.mark.parametrize(
    ("keys", "partitions", "partition"),
    [
        (["sku=123", "price=512$"], 3, 2),
        (["A1", "Super Shirt"], 3, 0),
        (["A1", "Super Shirt"], 8, 7),
        (["A1", "Super Shirt"], 12, 11),
        (["A1", "Super Shirt"], 16, 9),
        (["ABC-123"], 3, 2),
        (["ABC-123"], 8, 1),
        (["ABC-123"], 12, 3),
        ([True], 8, 6),
        ([True], 12, 8),
        (["\U0001f600"], 8, 3),
        (["\U0001f600"], 16, 11),
        ([MINIMUM], 3, 2),
    ],
)
def test_partitions_are_as_in_the_vectors_of_the_contract(keys, partitions, partition):
    """Reference publishing#hash-examples, publishing#hash-strategy."""
    assert partition_of(keys, partitions) == partition


def test_the_key_of_the_minimum_vector_has_the_minimum_hash():
    assert java_hash(MINIMUM) % 2**32 == 2**31


def test_partitions_are_indexed_in_the_order_of_their_ids_as_strings():
    """Reference publishing#partition-order."""
    assert ordered_partitions(12) == (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)


@given(st.lists(json_values, min_size=1, max_size=4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_equal_keys_go_to_one_partition_in_any_order(keys, partitions, random):
    """Reference publishing#hash-strategy."""
    partition = partition_of(keys, partitions)
    assert partition in range(partitions)
    assert partition == partition_of([key_text(key) for key in keys], partitions)
    random.shuffle(keys)
    assert partition == partition_of(keys, partitions)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        (0, "0"),
        (-42, "-42"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-4, "1.0E-4"),
        (-0.0, "-0.0"),
        (0.0, "0.0"),
        (-1.5, "-1.5"),
        (-1.25e-10, "-1.25E-10"),
        (512.25, "512.25"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        ({"a": [1, "b"]}, '{"a":[1,"b"]}'),
        ([], "[]"),
    ],
)
def test_key_values_are_formatted_as_in_java(value, text):
    """Reference publishing#key-texts."""
    assert key_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_double_is_parsed_as_the_same_double(number):
    assert repr(float(key_text(number))) == repr(number)


def test_a_missing_key_field_is_named():
    """Reference publishing#hash-strategy."""
    with pytest.raises(PartitionError, match=r"^field brand doesn't exist\.$"):
        by_hash([parse_path("item.brand")], 3)({"item": {}})


@given(st.integers(1, 12))
def test_the_publisher_names_any_existing_partition(partitions):
    """Reference publishing#user-defined-strategy, publishing#partition-ids."""
    choose = by_publisher(partitions)
    assert [choose({"metadata": {"partition": str(p)}}) for p in range(partitions)] == list(range(partitions))


@pytest.mark.parametrize("wanted", ["9", "-1", "01", "", "\u0661"])
def test_a_partition_that_does_not_exist_is_rejected(wanted):
    """Reference publishing#user-defined-strategy, publishing#partition-ids."""
    with pytest.raises(PartitionError) as caught:
        by_publisher(3)({"metadata": {"partition": wanted}})
    assert str(caught.value) == (
        f"Failed to resolve partition. Invalid partition specified when publishing event: {wanted}"
    )


@pytest.mark.parametrize("event", [{}, {"metadata": 1}, {"metadata": {}}, {"metadata": {"partition": 1}}])
def test_a_publisher_has_to_name_a_partition(event):
    with pytest.raises(PartitionError) as caught:
        by_publisher(3)(event)
    assert str(caught.value) == "Failed to resolve partition. Failed to get partition from event metadata"


def test_the_random_strategy_uses_all_partitions_equally():
    """Reference publishing#random-strategy."""
    chosen = at_random(9000, 3, Random(1))
    assert {partition: round(chosen.count(partition) / 3000, 1) for partition in chosen} == {0: 1.0, 1: 1.0, 2: 1.0}
    assert at_random(3, 1, Random(1)) == [0, 0, 0]
