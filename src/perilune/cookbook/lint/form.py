"""Rules on the form of a page: it parses, says what it is, holds no pipe table, ends in a line end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from perilune.cookbook.lint.finding import PageFinding, at
from perilune.cookbook.lint.source import Source
from perilune.cookbook.page import Dialect, Page, line_end
from perilune.cookbook.tables.convert import convert

MAX_FRONTMATTER = 65_536


def parses(source: Source) -> Iterator[PageFinding]:
    """The page is valid MDX."""
    if source.problem is not None:
        yield at(source.problem.line, "does-not-parse", f"The page does not compile: {source.problem.message}.")


def no_pipe_tables(source: Source) -> Iterator[PageFinding]:
    """Tables are JSX tables."""
    if source.page.dialect is not Dialect.MDX:
        return
    for table in source.tables:
        yield at(
            table.start + 1,
            "pipe-table",
            "This is a Markdown pipe table, and the cookbook takes JSX tables only.",
            "Run `perilune cookbook tables FILE --write`.",
        )


def fix_pipe_tables(page: Page) -> Page:
    """Convert the tables where all of them can be converted."""
    return convert(page, "jsx").page if page.dialect is Dialect.MDX else page


def ends_in_a_line_end(source: Source) -> Iterator[PageFinding]:
    """The last line is closed."""
    lines = source.page.lines
    if lines and not line_end(lines[-1]):
        yield at(len(lines), "final-newline", "The last line has no line end.", "End the file with a newline.")


def fix_final_newline(page: Page) -> Page:
    """Close the last line as the first one is closed."""
    if not page.lines or line_end(page.lines[-1]):
        return page
    return Page(page.text + (line_end(page.lines[0]) or "\n"), page.dialect, page.bom)


def frontmatter(source: Source) -> Iterator[PageFinding]:
    """The page has a title and a description."""
    page = source.page
    if page.dialect is not Dialect.MDX or page.frontmatter_is_open:
        return
    if page.frontmatter is None:
        yield at(
            1, "frontmatter", "The page opens with no frontmatter.", "Begin with `---`, title, description, `---`."
        )
        return
    first, end = page.frontmatter
    text = "".join(page.lines[first:end])
    given, line, problem = _mapping(text)
    if problem:
        yield at(first + 1 + line, "frontmatter", f"The frontmatter is no YAML mapping: {problem}.")
        return
    for name, what in (("title", "heads the page"), ("description", "is its subtitle and what search engines show")):
        value = given.get(name)
        if not isinstance(value, str | int | float) or not str(value).strip():
            yield at(1, f"frontmatter-{name}", f"The frontmatter has no {name}, which {what}.", f"Add `{name}: ...`.")


def _mapping(text: str) -> tuple[dict[str, Any], int, str]:
    """Return what the frontmatter says, or the line and the reason why it cannot be read."""
    if len(text) > MAX_FRONTMATTER:
        return {}, 0, f"it has more than {MAX_FRONTMATTER:,} characters"
    try:
        value = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        return {}, line, error.problem or "it cannot be read"
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}, 0, "it cannot be read"
    if value is None:
        return {}, 0, ""
    return (value, 0, "") if isinstance(value, dict) else ({}, 0, "it holds no names")
