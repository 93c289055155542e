"""The findings of `rioni verify`."""

from pathlib import Path
from typing import Any

from rioni.config.settings import Config
from rioni.installation.opened import opened
from rioni.operations import verification
from rioni.operations.verification import Inconsistency


def problems(config: Config, **options: Any) -> list[Inconsistency]:
    """All findings; the options are those of `opened`."""
    with opened(config, **options) as installation:
        return list(verification.check(installation))


def findings(config: Config | Path) -> list[str]:
    """All findings as text."""
    return [*map(str, problems(Config(data=config) if isinstance(config, Path) else config))]
