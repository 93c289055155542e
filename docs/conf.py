"""How Sphinx builds the documentation; the table of settings is made from the settings themselves."""

from docutils import nodes
from docutils.statemachine import StringList
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rioni import __version__
from rioni.config.settings import SETTINGS, Config


project = "Rioni"
author = "The Rioni developers"
copyright = "2026, The Rioni developers"
release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
html_theme = "furo"
html_title = f"Rioni {release}"
exclude_patterns = ["_build"]
nitpicky = True


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
        table = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), 0, table)
        return table.children


def setup(app: Sphinx) -> None:
    """Register the directive, and a language for pictures, which GitHub draws and Sphinx shows as text."""
    app.add_directive("settings-table", SettingsTable)
    app.add_lexer("mermaid", TextLexer)
