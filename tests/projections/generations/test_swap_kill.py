"""A generation that becomes live, killed at each step: it is live or it is not, and a further run completes it."""

import shutil
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from rioni.domain.errors import NotFound
from rioni.projections.generations.swap import promote
from rioni.sql.engines import open_engine
from tests.projections.generations.test_swap import NOW, contents, damage, names, schema, shown
from tests.support.history import Author, entries
from tests.support.killing import SQL_STEPS, killed_at_each_step


EVERY = 17


@pytest.mark.parametrize("registry_url", ["sqlite"], indirect=True)
def test_killed_at_any_step_a_generation_is_live_or_not_and_promoting_it_again_completes_it(
    engine, write, build, tmp_path
):
    log = entries(Author(Random(3)).commands())
    write(islice(log, 20))
    build("green")
    write(islice(log, 20))
    right, tables = contents(engine), schema(engine)
    damage(engine)
    wrong = contents(engine)
    engine.dispose()
    found = []

    def prepare(number: int) -> Path:
        folder = tmp_path / f"d{number}"
        folder.mkdir()
        for file in tmp_path.glob("registry.db*"):
            shutil.copy(file, folder)
        return folder

    def run(folder: Path) -> None:
        promote(open_engine(f"sqlite:///{folder / 'registry.db'}"), "green", NOW)

    for folder in killed_at_each_step(prepare, run, EVERY, SQL_STEPS):
        left = open_engine(f"sqlite:///{folder / 'registry.db'}")
        done = names(left) == ["previous"]
        found.append(done)
        assert contents(left) == (right if done else wrong)
        if done:
            # A run that does not know that it was done finds nothing to do, and says so.
            with pytest.raises(NotFound, match="no read models named green"):
                run(folder)
        else:
            assert names(left) == ["green"]
            run(folder)
        assert (contents(left), schema(left), names(left), shown(left)) == (right, tables, ["previous"], 40)
    assert found == sorted(found)
    assert set(found) == {False, True}
