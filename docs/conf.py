"""How Sphinx builds the documentation: settings come from the code, diagrams are drawn in the reader's browser."""

import subprocess
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from rioni import __version__
from rioni.cli.doctor.diagnosis import checks_as_markdown
from rioni.config.settings import SETTINGS, Config


project = "Rioni"
author = "The Rioni developers"
copyright = "2026, The Rioni developers"
release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_static_path = ["_static"]
html_title = f"Rioni {release}"
exclude_patterns = ["_build"]
nitpicky = True

PICTURES = Path(__file__).with_name("_pictures")
"""Pictures of the console, which are not kept in the repository."""
PICTURES_TIMEOUT_S = 600


class SettingsTable(SphinxDirective):
    """All settings with their defaults, bounds and descriptions."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        defaults = Config()
        lines = ["| Setting | Default | Must be | What it is for |", "|---|---|---|---|"]
        for setting in SETTINGS.values():
            default = "one per core" if setting.name == "workers" else setting.show(getattr(defaults, setting.name))
            cells = (f"`{setting.name}`", f"`{default}`" if default else "none", setting.expected, setting.description)
            lines.append(f"| {' | '.join(cells)} |")
        return parsed(self, lines)


class ChecksTable(SphinxDirective):
    """All checks of `rioni doctor`."""

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        return parsed(self, checks_as_markdown())


def parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    """The nodes of lines of Markdown."""
    table = nodes.Element()
    directive.state.nested_parse(StringList(lines, source=directive.get_source_info()[0]), 0, table)
    return table.children


class Diagram(SphinxDirective):
    """A diagram in Mermaid; a browser without JavaScript shows its text."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the element that `diagrams.js` replaces by the drawing."""
        text = escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html", classes=["diagram"])]


class ConsolePicture(SphinxDirective):
    """A picture of the console, by its name in the tour; where pictures were not made, what it would show."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the figure."""
        caption = " ".join(self.content)
        path = PICTURES / f"{self.arguments[0]}.webp"
        self.env.note_dependency(str(path))
        if not path.exists():
            return [nodes.paragraph("", caption)]
        image = nodes.image(uri=str(path.relative_to(self.env.srcdir)), alt=caption)
        return [nodes.figure("", image, nodes.caption("", caption), classes=["console-picture"])]


def make_pictures(app: Sphinx) -> None:
    """Let Chromium take the pictures of the console anew, if `console_pictures` is set: `tox run -e docs`."""
    if not app.config.console_pictures:
        return
    command = [sys.executable, "-m", "tests.support.console_tour", str(PICTURES)]
    done = subprocess.run(
        command, cwd=PICTURES.parents[1], capture_output=True, text=True, check=False, timeout=PICTURES_TIMEOUT_S
    )
    if done.returncode:
        raise ExtensionError(f"The pictures of the console could not be made: {done.stderr}")


def load_mermaid(app: Sphinx, _page: str, _template: str, _context: object, document: nodes.document | None) -> None:
    """Load the scripts on pages with diagrams only."""
    if document and any("diagram" in node["classes"] for node in document.findall(nodes.raw)):
        for script in ("mermaid/mermaid.tiny.js", "diagrams.js"):
            app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("settings-table", SettingsTable)
    app.add_directive("checks-table", ChecksTable)
    app.add_directive("mermaid", Diagram)
    app.add_directive("console-picture", ConsolePicture)
    app.add_css_file("pictures.css")
    app.add_config_value("console_pictures", default=False, rebuild="env", types=(bool, str))
    app.connect("builder-inited", make_pictures)
    app.connect("html-page-context", load_mermaid)
