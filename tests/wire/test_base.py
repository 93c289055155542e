"""The structs of the API's bodies."""

from importlib import import_module
from pathlib import Path

import msgspec

import rioni.wire
from rioni.wire.base import Model


def _structs() -> list[type[Model]]:
    modules = [import_module(f"rioni.wire.{path.stem}") for path in Path(rioni.wire.__file__).parent.glob("[!_]*.py")]
    return [
        struct
        for module in modules
        for struct in vars(module).values()
        if isinstance(struct, type) and issubclass(struct, Model) and struct.__module__ == module.__name__
    ]


def test_each_struct_has_a_name_of_its_own():
    names = [struct.__name__ for struct in _structs()]
    assert len(names) > 50
    assert len(names) == len({*names})


def test_what_only_the_broker_sets_are_members():
    strangers = {
        struct.__name__: struct.NOT_SENT - {field.name for field in msgspec.structs.fields(struct)}
        for struct in _structs()
    }
    assert {name: found for name, found in strangers.items() if found} == {}
