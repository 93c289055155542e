"""Creating an event type in a process that may die at any step, or be overtaken by others."""

import contextlib
import itertools
from functools import partial

import msgspec
import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.system.storages import CreateStorage, DeleteStorage, SetDefaultStorage
from rioni.commands.timelines.topics import AbandonTopicCreation
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Conflict, RioniError, Unavailable
from rioni.domain.system.storages import DEFAULT_STORAGE, StorageEntry
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from tests.support.broker import Broker
from tests.support.builders import event_type_spec
from tests.support.processes import Process, ProcessDied


NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())
STEPS = range(8)
"""Before and after: the check whether it is possible, the record of the intent, the creation of the topic, and the
record of the event type."""
UNDER_WAY = STEPS[3:-1]


@pytest.fixture
def directory(tmp_path):
    with DataDirectory(tmp_path / "data") as directory:
        yield directory


@pytest.fixture
def broker(directory):
    with contextlib.closing(Broker(directory)) as broker:
        yield broker


@pytest.fixture
def start_process(broker, directory):
    with contextlib.ExitStack() as opened:

        def start() -> Process:
            coordinator = EmbeddedCoordinator(directory.coordination, clock=broker.clock, signals=broker.signals)
            opened.callback(coordinator.close)
            return Process(broker, coordinator)

        yield start


@pytest.fixture
def one(start_process):
    return start_process()


@pytest.fixture
def other(start_process):
    return start_process()


def at_step(process, at, act):
    """Run a callback at one of the steps of a process."""
    steps = itertools.count()

    def step():
        if next(steps) == at:
            act()

    process.step = step


def outcome(act):
    """The type of exception that an action raises, or True."""
    try:
        act()
    except RioniError as ex:
        return type(ex)
    return True


def create(broker, process):
    return outcome(lambda: process.bus.dispatch(CREATE, broker.context()))


def run_background_jobs(broker):
    cleaner = broker.background_jobs()._orphan_cleaner
    cleaner.abandon_unfinished(broker.context())
    cleaner.delete_abandoned(broker.context())


def check(broker):
    """There are no topics but those of event types, and nothing is recorded as unfinished."""
    run_background_jobs(broker)
    broker.registry.refresh()
    assert broker.registry.topic_creations() == []
    assert broker.registry.abandoned_topics() == []
    names = [each.name for each in broker.registry.event_types()]
    topics = {timeline.topic for name in names for timeline in broker.registry.timelines(name).timelines}
    assert {topic for each in broker.registry.storages() for topic in broker.stores.of(each.id).topics()} == topics
    return names


def test_the_tested_steps_are_all_steps_of_a_creation(broker, one):
    steps = []

    def step():
        broker.registry.refresh()
        steps.append(len(broker.registry.topic_creations()))

    one.step = step
    assert create(broker, one) is True
    assert len(steps) == len(STEPS)
    assert [at for at in STEPS if steps[at]] == list(UNDER_WAY)


@pytest.mark.parametrize("at", STEPS)
def test_a_process_that_dies_at_any_step_leaves_nothing_and_the_event_type_can_be_created(broker, one, other, at):
    steps = itertools.count()

    def die():
        if next(steps) >= at:
            raise ProcessDied

    one.step = die
    with pytest.raises(ProcessDied):
        one.bus.dispatch(CREATE, broker.context())
    run_background_jobs(broker)
    broker.registry.refresh()
    assert len(broker.registry.topic_creations()) == (at in UNDER_WAY), "the others take it for alive"
    one.coordinator.close()
    assert check(broker) == ([NAME] if at == STEPS[-1] else [])
    assert create(broker, other) is (Conflict if at == STEPS[-1] else True)
    assert check(broker) == [NAME]


@pytest.mark.parametrize("at", STEPS)
def test_of_two_processes_that_create_the_same_event_type_one_succeeds(broker, one, other, at):
    answers = []
    at_step(one, at, lambda: answers.append(create(broker, other)))
    assert create(broker, one) is (True if at == STEPS[-1] else Conflict)
    assert answers == [Conflict if at == STEPS[-1] else True]
    assert check(broker) == [NAME]


@pytest.mark.parametrize("confirms_topics", [False, True])
@pytest.mark.parametrize("at", STEPS)
def test_a_process_considered_dead_creates_nothing_and_leaves_no_topic(broker, one, at, confirms_topics):
    one.confirms_topics = confirms_topics

    def considered_dead():
        one.coordinator.close()
        run_background_jobs(broker)

    at_step(one, at, considered_dead)
    assert create(broker, one) is (Unavailable if at in UNDER_WAY else True)
    assert check(broker) == ([] if at in UNDER_WAY else [NAME])


@pytest.mark.parametrize("at", STEPS)
def test_either_the_storage_is_deleted_during_a_creation_or_the_event_type_is_created(broker, one, at):
    broker.do(CreateStorage(storage=StorageEntry(id="other", storage_type="embedded", default=False)))
    broker.do(SetDefaultStorage(storage_id="other"))
    answers = []

    def act():
        broker.do(SetDefaultStorage(storage_id=DEFAULT_STORAGE))
        answers.append(outcome(lambda: broker.do(DeleteStorage(storage_id="other"))))

    at_step(one, at, act)
    created = create(broker, one)
    assert answers == [True if at < STEPS[-1] else answers[0]]
    assert created is (True if at not in UNDER_WAY else Unavailable if at < UNDER_WAY[1] else Conflict)


def test_a_storage_that_fails_leaves_no_event_type_and_its_topic_is_deleted_later(broker, monkeypatch):
    make = broker.store.create_topic

    def create_and_fail(*args):
        make(*args)
        raise Unavailable("no answer")

    head = broker.log.head().position
    with monkeypatch.context() as broken:
        broken.setattr(broker.store, "create_topic", create_and_fail)
        # It would let the client wait once more.
        broken.setattr(broker.store, "delete_topic", lambda _topic: pytest.fail("asked although it has not answered"))
        with pytest.raises(Unavailable, match="no answer"):
            broker.do(CREATE)
    assert broker.topics(head) == ["topic-creation.started", "topic-creation.ended", "topic.abandoned"]
    assert check(broker) == []
    broker.do(CREATE)
    assert check(broker) == [NAME]


def test_a_completed_creation_is_not_abandoned(broker):
    context = broker.context()
    broker.bus.dispatch(CREATE, context)
    creation = broker.start_creation(event_type_spec(name="other"))
    in_use = msgspec.structs.replace(creation, topic=context.topic, event_type=NAME)
    head = broker.log.head()
    broker.do(AbandonTopicCreation(creation=in_use))
    assert broker.log.head() == head
    broker.do(AbandonTopicCreation(creation=creation), Subject(name="the process that created it"))
    assert check(broker) == [NAME]


def test_the_topic_of_an_event_type_deleted_meanwhile_is_deleted(broker, one):
    at_step(one, STEPS[-1], partial(broker.do, DeleteEventType(name=NAME)))
    assert create(broker, one) is True
    assert check(broker) == []
