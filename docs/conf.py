"""How Sphinx builds the documentation: pages are plain Markdown, diagrams are drawn in the reader's browser."""

import re
from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rioni import __version__


project = "Rioni"
author = "The Rioni developers"
copyright = "2026, The Rioni developers"
release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_static_path = ["_static"]
html_title = f"Rioni {release}"
exclude_patterns = ["_build"]
nitpicky = True

LINK = re.compile(r"^(?:- |\| )\[[^\]]+\]\(([\w/-]+)\.md\)", re.MULTILINE)


class Diagram(SphinxDirective):
    """A diagram in Mermaid; a browser without JavaScript shows its text."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the element that `diagrams.js` replaces by the drawing."""
        text = escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html", classes=["diagram"])]


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the navigation from the links at the beginnings of items and rows, on the pages that are an index."""
    if page != "cli" and not page.endswith("index"):
        return
    for section in source[0].split("\n## "):
        if pages := LINK.findall(section):
            caption = f":caption: {section.splitlines()[0]}\n" if page == "index" else ""
            source[0] += "\n".join(["\n\n```{toctree}\n:hidden:", caption, *pages, "```"])


def load_mermaid(app: Sphinx, _page: str, _template: str, _context: object, document: nodes.document | None) -> None:
    """Load the scripts on pages with diagrams only."""
    if document and any("diagram" in node["classes"] for node in document.findall(nodes.raw)):
        for script in ("mermaid/mermaid.tiny.js", "diagrams.js"):
            app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> None:
    """Register the directive, and the functions that Sphinx calls."""
    app.add_directive("mermaid", Diagram)
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", load_mermaid)
