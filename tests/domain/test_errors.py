"""The tree of errors that the module's docstring shows."""

import textwrap

from rioni.domain import errors


def tree(error: type[Exception], depth: int = 0) -> str:
    """Draw an error and its descendants in the module: leaves next to their parent, others on lines of their own."""
    children = sorted((each for each in vars(errors).values() if error in getattr(each, "__bases__", ())), key=str)
    leaves = [each.__name__ for each in children if not tree(each)]
    if not children:
        return ""
    line = textwrap.fill(
        f"{error.__name__}: {', '.join(leaves)}", 118, initial_indent="  " * depth, subsequent_indent="  " * (depth + 2)
    )
    return "\n".join([line.rstrip(": "), *filter(None, (tree(each, depth + 1) for each in children))])


def test_the_docstring_shows_the_tree_of_errors() -> None:
    """Each error stands below the one that it extends."""
    assert tree(errors.RioniError) in (errors.__doc__ or "")
