import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.expendable import ActivityDatabase, SlotsDatabase


@pytest.fixture(
    params=[
        (ActivityDatabase, "client activity"),
        (CoordinationDatabase, "database of sessions and cursors"),
        (EventsDatabase, "event store"),
        (SlotsDatabase, "connection quota"),
    ],
    ids=lambda param: param[0].__name__,
)
def kind(request):
    return request.param


def test_the_error_of_a_closed_file_names_its_contents(kind, tmp_path):
    database_class, contents = kind
    database = database_class(tmp_path / "file.db")
    database.close()
    with pytest.raises(Unavailable, match=f"^The {contents} is closed"), database.writing():
        pass


def test_the_error_of_an_unusable_file_names_its_contents(kind, tmp_path):
    database_class, contents = kind
    with pytest.raises(Unavailable, match=f"^The {contents} can't use its files"):
        database_class(tmp_path / "missing" / "file.db")


def test_damage_of_other_files_is_not_reported_as_damaged_events(tmp_path):
    path = tmp_path / "file.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(Unavailable, match=f"^The {CoordinationDatabase.contents} is damaged: .*backup"):
        CoordinationDatabase(path)
