"""A state file of another copy is refused with what to do."""

import pytest

from rioni.cli.events.copy_state import CopyState, Identity, state_file
from rioni.domain.errors import Invalid


OLD, NEW = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"


def made(source=OLD, target=OLD, target_name="b"):
    return CopyState(source=Identity("a", source), target=Identity(target_name, target), options={}, target_begin={})


@pytest.mark.parametrize(
    ("new", "advice"),
    [
        (made(target_name="c"), "a copy from a to b. Name another file."),
        (made(source=NEW), "an older event type a, which was deleted and created again since. Remove the file"),
        (made(target=NEW), "an older event type b, which was deleted and created again since. Remove the file"),
        (made(source=NEW, target=NEW), "an older event type b, which .* Remove the file to copy everything"),
    ],
)
def test_the_state_of_another_copy_is_refused_with_what_to_do(tmp_path, new, advice):
    path = tmp_path / "state"
    with state_file(path, made()) as state:
        state.save()
    with state_file(path, made()):
        pass
    with pytest.raises(Invalid, match=f"{path} is of .*{advice}"), state_file(path, new):
        pass
