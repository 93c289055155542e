"""The contract of the port `EventLog`: subclasses provide the fixtures `log` and `other_log`."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar
from uuid import UUID

import msgspec
import pytest

from rioni.domain.errors import ConcurrentChange
from rioni.domain.events import DomainEvent, Origin, stream_id
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.domain.ports.event_log import EventLog, LogEntry
from tests.support.waiting import WAIT_S


class Noted(DomainEvent, frozen=True, kw_only=True):
    """A domain event of these tests."""

    TOPIC: ClassVar[str] = "note.noted"
    KEY: ClassVar[str] = "name"

    name: str
    text: str = ""


TOPICS: dict[str, type[DomainEvent]] = {Noted.TOPIC: Noted}

ORIGIN = Origin(
    actor="jürgen",
    client="127.0.0.1",
    flow_id="flow-1",
    command_id="0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
    recorded_at="2026-11-20T10:00:00.000Z",
)


def note(log: EventLog, name: str, *texts: str, version: int = 0) -> list[LogEntry]:
    """Append to the stream of a name, in a separate transaction."""
    with log.transaction() as transaction:
        events = [Noted(name=name, text=text) for text in texts or ("",)]
        return list(transaction.append(stream_id("note", name), version, events, ORIGIN))


def read_all(log: EventLog) -> list[LogEntry]:
    """All entries, read page by page."""

    def pages() -> Iterator[LogEntry]:
        position = 0
        while page := log.entries(position, 100):
            yield from page
            position = page[-1].position

    return list(pages())


class EventLogContract:
    @pytest.fixture
    def other_log(self, log: EventLog) -> EventLog:
        """The log of another process, or an equivalent."""
        return log

    # --- the head ---

    def test_an_empty_log_ends_at_position_0(self, log: EventLog):
        assert log.head() == LogHead(0, GENESIS)
        assert log.entries(0, 10) == []

    def test_the_head_is_the_last_entry(self, log: EventLog, other_log: EventLog):
        assert other_log.head().position == 0
        note(log, "a", "1", "2")
        assert log.head().position == 2
        assert other_log.head() == log.head()
        assert log.head().hash != GENESIS

    def test_every_entry_changes_the_hash(self, log: EventLog):
        hashes = {log.head().hash}
        for version in range(3):
            note(log, "a", "the same", version=version)
            hashes.add(log.head().hash)
        assert len(hashes) == 4

    def test_after_a_transaction_every_process_sees_its_last_position(self, log: EventLog, other_log: EventLog):
        assert log.position() == other_log.position() == 0
        for version in range(5):
            (entry,) = note(log if version % 2 else other_log, "a", version=version)
            assert log.position() == other_log.position() == entry.position
            assert log.last_notified_position() == other_log.last_notified_position() == entry.position

    # --- appending ---

    def test_entries_are_read_as_they_were_appended(self, log: EventLog, other_log: EventLog):
        appended = note(log, "größe", "価格", "\x00\n")
        assert [(entry.position, entry.version) for entry in appended] == [(1, 1), (2, 2)]
        assert appended[0].stream == stream_id("note", "größe")
        assert appended[0].event == Noted(name="größe", text="価格")
        assert appended[0].origin == ORIGIN
        assert other_log.entries(0, 10) == appended

    def test_positions_count_over_all_streams_and_versions_within_one(self, log: EventLog):
        note(log, "a", "1")
        note(log, "b", "1", "2")
        note(log, "a", "2", version=1)
        assert [(entry.position, entry.event.key, entry.version) for entry in read_all(log)] == [
            (1, "a", 1),
            (2, "b", 1),
            (3, "b", 2),
            (4, "a", 2),
        ]

    @pytest.mark.parametrize(
        ("earlier", "recorded"),
        [
            ("2026-11-20T10:00:00.000Z", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T09:59:59.999Z", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T09:00:00.000Z", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T08:59:59.999Z", "2026-11-20T10:00:00.000Z"),
            ("2016-11-20T10:00:00.000Z", "2026-11-20T10:00:00.000Z"),
            ("2026-11-20T10:00:00.001Z", "2026-11-20T10:00:00.001Z"),
        ],
    )
    def test_an_entry_is_not_recorded_before_the_one_before_it(self, log: EventLog, earlier: str, recorded: str):
        note(log, "a")
        with log.transaction() as transaction:
            origin = msgspec.structs.replace(ORIGIN, recorded_at=earlier)
            (entry,) = transaction.append(stream_id("note", "b"), 0, [Noted(name="b")], origin)
        assert entry.origin.recorded_at == recorded
        assert read_all(log)[-1] == entry

    def test_appending_nothing_changes_nothing(self, log: EventLog):
        note(log, "a", "1")
        before = log.head()
        with log.transaction() as transaction:
            assert transaction.append(stream_id("note", "a"), 1, [], ORIGIN) == []
        assert log.head() == before

    @pytest.mark.parametrize("version", [0, 1, 3])
    def test_appending_with_a_wrong_expected_version_is_rejected(self, log: EventLog, version: int):
        note(log, "a", "1", "2")
        before = log.head()
        with pytest.raises(ConcurrentChange):
            note(log, "a", "3", version=version)
        assert log.head() == before

    def test_an_unknown_stream_has_version_0(self, log: EventLog):
        with pytest.raises(ConcurrentChange):
            note(log, "a", "1", version=1)

    # --- transactions ---

    def test_a_transaction_sees_its_own_appends(self, log: EventLog):
        note(log, "a", "1")
        with log.transaction() as transaction:
            assert transaction.head == log.head()
            appended = transaction.append(stream_id("note", "b"), 0, [Noted(name="b")], ORIGIN)
            assert transaction.head.position == 2
            assert list(transaction.entries(1)) == appended
            appended += transaction.append(stream_id("note", "b"), 1, [Noted(name="b")], ORIGIN)
            assert list(transaction.entries(1)) == appended
            end = transaction.head
        assert log.head() == end

    def test_uncommitted_entries_are_invisible_to_others(self, log: EventLog, other_log: EventLog):
        with log.transaction() as transaction:
            transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], ORIGIN)
            assert other_log.head() == LogHead(0, GENESIS)
            assert other_log.entries(0, 10) == []
        assert other_log.head().position == 1

    def test_a_transaction_that_raises_writes_nothing(self, log: EventLog):
        class Stop(Exception):
            pass

        def fail() -> None:
            with log.transaction() as transaction:
                transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], ORIGIN)
                raise Stop

        with pytest.raises(Stop):
            fail()
        assert log.head() == LogHead(0, GENESIS)
        assert note(log, "a")[0].position == 1

    def test_a_rejected_append_may_be_retried_in_the_same_transaction(self, log: EventLog):
        note(log, "a", "1")
        with log.transaction() as transaction:
            with pytest.raises(ConcurrentChange):
                transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], ORIGIN)
            assert transaction.append(stream_id("note", "a"), 1, [Noted(name="a")], ORIGIN)[0].position == 2

    def test_a_second_transaction_waits_for_the_first_and_sees_its_entries(self, log: EventLog, other_log: EventLog):
        begun, later = threading.Event(), msgspec.structs.replace(ORIGIN, recorded_at="2026-11-20T10:00:01.000Z")

        def append_too() -> LogHead:
            begun.set()
            with other_log.transaction() as transaction:
                seen = transaction.head
                transaction.append(stream_id("note", "b"), 0, [Noted(name="b")], ORIGIN)
                return seen

        with ThreadPoolExecutor(1) as executor:
            with log.transaction() as transaction:
                waiting = executor.submit(append_too)
                assert begun.wait(WAIT_S)
                transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], later)
                assert not waiting.done()
                end = transaction.head
            assert waiting.result(WAIT_S) == end
        assert [(entry.event.key, entry.origin) for entry in read_all(log)] == [("a", later), ("b", later)]

    # --- commits that were not answered ---

    def test_a_command_is_recorded_behind_the_position_at_which_it_began(self, log: EventLog, other_log: EventLog):
        assert not other_log.was_committed(ORIGIN.command_id, 0)
        note(log, "a", "1", "2")
        assert other_log.was_committed(ORIGIN.command_id, 0)
        assert other_log.was_committed(ORIGIN.command_id, 1)
        assert not other_log.was_committed(ORIGIN.command_id, 2)
        assert not other_log.was_committed("84a7c2a5-5e0b-4d0a-b9ac-3f1c4f9e9d52", 0)

    def test_whether_a_command_is_recorded_is_known_when_its_transaction_has_ended(self, log, other_log):
        with ThreadPoolExecutor(1) as executor:
            with log.transaction() as transaction:
                asked = executor.submit(other_log.was_committed, ORIGIN.command_id, 0)
                transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], ORIGIN)
                assert not asked.done()
            assert asked.result(WAIT_S)

    # --- reading ---

    def test_entries_are_read_behind_a_position_up_to_a_limit(self, log: EventLog):
        appended = note(log, "a", *map(str, range(7)))
        assert log.entries(2, 3) == appended[2:5]
        assert log.entries(5, 3) == appended[5:]
        assert log.entries(7, 3) == []
        assert read_all(log) == appended

    def test_a_transaction_reads_entries_up_to_the_end_of_the_log(self, log: EventLog):
        appended = note(log, "a", *map(str, range(2_500)))
        with log.transaction() as transaction:
            assert list(transaction.entries(100)) == appended[100:]

    def test_an_entry_has_the_attribute_names_of_the_library_too(self, log: EventLog):
        (entry,) = note(log, "a")
        assert isinstance(entry.originator_id, UUID)
        assert (entry.originator_id, entry.originator_version) == (entry.stream, entry.version)

    # --- many writers ---

    def test_of_concurrent_appends_with_one_expected_version_exactly_one_succeeds(
        self, log: EventLog, other_log: EventLog
    ):
        def attempt(number: int) -> bool:
            try:
                note(other_log if number % 2 else log, "a", str(number))
            except ConcurrentChange:
                return False
            return True

        with ThreadPoolExecutor(8) as executor:
            assert sum(executor.map(attempt, range(16))) == 1
        assert len(read_all(log)) == 1

    def test_positions_stay_gapless_and_a_reader_never_skips_one(self, log: EventLog, other_log: EventLog):
        writers, appends = 4, 15
        done = threading.Event()
        followed: list[int] = []

        def write(writer: int) -> None:
            mine = other_log if writer % 2 else log
            for version in range(appends):
                note(mine, f"stream {writer}", str(version), version=version)

        def follow() -> None:
            # One more round after the end, so that nothing is left unread.
            for last_round in iter(done.is_set, None):
                position = followed[-1] if followed else 0
                assert log.head().position >= position
                followed.extend(entry.position for entry in other_log.entries(position, 1_000))
                if last_round:
                    return

        with ThreadPoolExecutor(writers + 1) as executor:
            following = executor.submit(follow)
            try:
                for future in [executor.submit(write, writer) for writer in range(writers)]:
                    future.result(120)
            finally:
                # If a writer fails, the test must end all the same.
                done.set()
            following.result(120)
        assert followed == list(range(1, writers * appends + 1))
        for writer in range(writers):
            mine = [entry.version for entry in read_all(log) if entry.event.key == f"stream {writer}"]
            assert mine == list(range(1, appends + 1))
