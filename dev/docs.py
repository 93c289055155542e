"""Generates pages of the documentation about commands, and the marked parts of the other pages.

A part begins with `<!-- generated: NAME ARGUMENT -->` and ends with `<!-- end -->`. `PARTS` lists the names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rioni.cli.app import LINK, SECTIONS
from rioni.cli.doctor.diagnosis import all_checks
from rioni.cli.documentation import CommandHelp, topics
from rioni.cli.documentation import pages as command_pages
from rioni.config.settings import SETTINGS, Config
from rioni.domain.errors import RioniError
from rioni.http.problems import STATUSES


ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COMMANDS = DOCS / "cli"
PART = re.compile(r"(<!-- generated: (\w+) ?(\S*) -->\n).*?(<!-- end -->)", re.DOTALL)
LANGUAGES = {".clin": "yaml", ".rs": "rust", ".py": "python"}
"""Names of languages that differ from the endings of files."""


def pages() -> dict[Path, str]:
    """The text of each page that is generated, or has generated parts."""
    texts = {COMMANDS / f"{section}.md": _section(section) for section in SECTIONS}
    texts[COMMANDS / "cheats.md"] = _cheats()
    for path in DOCS.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if path not in texts and PART.search(text):
            texts[path] = PART.sub(lambda part: f"{part[1]}{PARTS[part[2]](part[3])}\n{part[4]}", text)
    return texts


def written() -> Iterator[Path]:
    """The files of the folders in which all files are generated."""
    return COMMANDS.glob("*.md")


def _settings(_: str) -> str:
    defaults = Config()
    lines = ["| Setting | Default | Must be | What it is for |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        default = "one per core" if setting.name == "workers" else setting.show(getattr(defaults, setting.name))
        cells = (f"`{setting.name}`", f"`{default}`" if default else "none", setting.expected, setting.description)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _checks(_: str) -> str:
    rows = [f"| {each.group} | `{each.name}` | {each.severity} | {each.looks_at} |" for each in all_checks().values()]
    return "\n".join(["| Group | Check | At worst | What it looks at |", "|---|---|---|---|", *rows])


def _errors(_: str) -> str:
    return "\n".join(["```text", *_tree(RioniError, "", ""), "```"])


def _tree(error: type[RioniError], first: str, rest: str) -> Iterator[str]:
    """The lines of an error and its subclasses.

    Args:
        error: the class.
        first: the beginning of its line.
        rest: the beginning of the lines of its subclasses.
    """
    status = f" {STATUSES[error].value}" if error in STATUSES else ""
    summary = re.sub(r" \(reference .*?\)", "", (error.__doc__ or "").partition("\n\n")[0])
    yield f"{first}{error.__name__}{status}: {summary}"
    below = [each for each in error.__subclasses__() if each.__module__ == error.__module__]
    for each in below:
        last = each is below[-1]
        yield from _tree(each, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))


def _decisions(_: str) -> str:
    found = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    titles = (path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in found)
    return "\n".join(f"- [{title}]({path.name})" for title, path in zip(titles, found, strict=True))


def _file(name: str) -> str:
    """The text of a file, with its name."""
    path = ROOT / name
    language = LANGUAGES.get(path.suffix or path.name, path.suffix.removeprefix("."))
    return f"`{path.name}`:\n\n```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```"


PARTS: Mapping[str, Callable[[str], str]] = {
    "settings": _settings,
    "checks": _checks,
    "decisions": _decisions,
    "errors": _errors,
    "file": _file,
}
"""Functions that return the text of a part, by its name; each takes the argument of the part."""


# --- Pages about commands ---


def _section(section: str) -> str:
    title, commands = SECTIONS[section]
    text = [f"# {title}\n"]
    for name, page in command_pages().items():
        if name.split()[1:2] and name.split()[1] in commands:
            text.append(_command(page))
    return "\n".join(text)


def _cheats() -> str:
    """The topics of `rioni cheat`."""
    parts = ["# Examples by topic", "`rioni cheat TOPIC` shows these examples, which are executed in the tests."]
    for topic in topics().values():
        parts.append(f"## {topic.title}")
        for example in topic.examples:
            parts += [example.words] * bool(example.words)
            parts += [f"```sh\n{example.commands}\n```"] * bool(example.commands)
    return "\n\n".join(parts) + "\n"


def _command(page: CommandHelp) -> str:
    parts = [f"## {page.name}", page.summary, *page.description]
    if page.examples:
        parts.append("\n".join(["```sh", *page.examples, "```"]))
    if not page.commands:
        parts.append(f"Usage: `{page.usage}`")
    if parameters := [*page.arguments, *page.options]:
        names = (each.names.replace("|", "\\|") for each in parameters)
        rows = [f"| `{name}` | {_cell(each.help)} |" for name, each in zip(names, parameters, strict=True)]
        parts.append("\n".join(["| Argument or option | |", "|---|---|", *rows]))
    if page.connects:
        parts.append(
            "The options of the connection and `--json` are [those of all commands](../cli.md#the-connection)."
        )
    return LINK.sub(_from_folder, "\n\n".join(parts)) + "\n"


def _from_folder(link: re.Match[str]) -> str:
    text, target = link.groups()
    relative = not target.startswith(("http:", "https:", "../", "#"))
    return f"[{text}]({'../' if relative else ''}{target})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
