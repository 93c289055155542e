"""Samples of the last hour, shared by processes."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.http.metrics import history_table
from rioni.http.metrics.history_table import HistoryTable, Series


A, B = Series("events", "event_type", "a"), Series("events", "event_type", "b")
PLAIN = Series("requests")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Limit the table to five rows."""
    monkeypatch.setattr(history_table, "SAMPLES", 5)


def shown(table, wanted=lambda _series: True, series_max=100):
    """The times, and the values of all series; None for missing ones."""
    history, matched = table.read(wanted, series_max)
    values = {
        series: [None if math.isnan(value) else value for value in values] for series, values in history.values.items()
    }
    assert matched >= len(values)
    return list(history.times_ms), values


def test_every_process_reads_what_one_has_written(tmp_path):
    writer, reader = HistoryTable(tmp_path, 10), HistoryTable(tmp_path, 10)
    assert shown(reader) == ([], {})
    writer.write(10, {A: 1.5, PLAIN: 2.0})
    writer.write(20, {A: 0.0, PLAIN: 3.0, B: 4.0})
    assert shown(reader) == ([10, 20], {A: [1.5, 0.0], B: [None, 4.0], PLAIN: [2.0, 3.0]})


def test_the_oldest_values_make_room_for_new_ones():
    table = HistoryTable(None, 10)
    for number in range(1, 9):
        table.write(number, {A: float(number)})
    assert shown(table) == ([4, 5, 6, 7, 8], {A: [4.0, 5.0, 6.0, 7.0, 8.0]})


def test_values_are_in_the_order_of_time_when_the_clock_was_set_back():
    table = HistoryTable(None, 10)
    for at, value in ((30, 1.0), (10, 2.0), (20, 3.0)):
        table.write(at, {A: value})
    assert shown(table) == ([10, 20, 30], {A: [2.0, 3.0, 1.0]})


def test_a_series_begins_with_a_value_that_is_not_zero():
    table = HistoryTable(None, 10)
    table.write(1, {A: 0.0})
    assert shown(table) == ([1], {})
    table.write(2, {A: 1.0})
    assert shown(table) == ([1, 2], {A: [None, 1.0]})


def test_a_series_that_was_zero_for_long_ends():
    table = HistoryTable(None, 10)
    table.write(1, {A: 1.0})
    for number in range(2, 12):
        table.write(number, {A: 0.0})
    assert shown(table)[1] == {}


def test_a_series_without_a_value_now_keeps_those_that_it_had():
    table = HistoryTable(None, 10)
    table.write(1, {A: 1.0, B: math.nan})
    table.write(2, {A: math.nan, B: math.nan})
    assert shown(table) == ([1, 2], {A: [1.0, None]})
    for number in range(3, 13):
        table.write(number, {A: math.nan})
    assert shown(table)[1] == {}


def test_what_is_deleted_ends_at_once_and_its_column_begins_anew():
    table = HistoryTable(None, 2)
    table.write(1, {A: 1.0, PLAIN: 5.0})
    table.write(2, {PLAIN: 5.0})
    assert shown(table)[1] == {PLAIN: [5.0, 5.0]}
    table.write(3, {B: 2.0, PLAIN: 5.0})
    assert shown(table)[1] == {B: [None, None, 2.0], PLAIN: [5.0, 5.0, 5.0]}


def test_further_series_than_there_are_columns_are_left_out():
    table = HistoryTable(None, 1)
    table.write(1, {A: 1.0, B: 2.0})
    assert shown(table)[1] == {A: [1.0]}


def test_series_are_chosen_and_limited_by_name():
    table = HistoryTable(None, 10)
    table.write(1, {B: 2.0, A: 1.0, PLAIN: 3.0})
    assert list(shown(table, lambda series: series.label == "event_type")[1]) == [A, B]
    history, matched = table.read(lambda _series: True, 1)
    assert (list(history.values), matched) == ([A], 3)


def test_another_process_goes_on_with_the_table_of_a_dead_one(tmp_path):
    HistoryTable(tmp_path, 10).write(1, {A: 1.0})
    HistoryTable(tmp_path, 10).write(2, {A: 2.0, B: 3.0})
    assert shown(HistoryTable(tmp_path, 10)) == ([1, 2], {A: [1.0, 2.0], B: [None, 3.0]})


def test_the_largest_last_values_come_first():
    table = HistoryTable(None, 10)
    table.write(1, {A: 9.0, B: 1.0, PLAIN: 2.0})
    table.write(2, {A: 3.0, B: 5.0})
    history, matched = table.read(lambda _series: True, 2, largest=True)
    assert ([*history.values], matched) == ([B, A], 3)
    assert HistoryTable(None, 10).read(lambda _series: True, 2, largest=True)[0].values == {}


def test_workers_that_start_together_share_the_table(tmp_path):
    for round_ in range(10):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with ThreadPoolExecutor(6) as pool:
            tables = [*pool.map(lambda _, folder=folder: HistoryTable(folder, 10), range(6))]
        tables[0].write(1, {A: 1.0})
        assert [shown(each) for each in tables] == [([1], {A: [1.0]})] * 6
