"""All rules over a page, and the fixes that are safe to make."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perilune.cookbook.lint import commands, form, hardware, links, parity
from perilune.cookbook.lint.finding import PageFinding
from perilune.cookbook.lint.source import Source, read
from perilune.cookbook.page import Page

Rule = Callable[[Source], Iterator[PageFinding]]

RULES: tuple[Rule, ...] = (
    form.parses,
    form.frontmatter,
    form.no_pipe_tables,
    form.ends_in_a_line_end,
    links.anchors_exist,
    links.links_are_well_formed,
    commands.current_launcher,
    commands.one_port,
    commands.known_flags,
    commands.known_variables,
    commands.commands_start,
    hardware.memory_sizes,
    hardware.fp4_where_there_is_fp4,
    parity.parity,
)
FIXES: tuple[Callable[[Page], Page], ...] = (commands.fix_launcher, form.fix_pipe_tables, form.fix_final_newline)


def lint(page: Page) -> list[PageFinding]:
    """Return every finding about a page, in the order of its lines, each once."""
    source = read(page)
    found = dict.fromkeys(finding for rule in RULES for finding in rule(source))
    return sorted(found, key=lambda finding: finding.line)


def fix(page: Page) -> Page:
    """Make the changes that cannot alter what the page says."""
    for make in FIXES:
        page = make(page)
    return page
