"""markdown-it set up for a page's dialect, and a page as parsed by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.token import Token

from perilune.cookbook.page import Dialect, Page, PageError
from perilune.cookbook.syntax import autolink, blocks, esm, inline, links, pipes, spans
from perilune.cookbook.syntax.jsx import MdxError
from perilune.cookbook.syntax.nodes import Node
from perilune.cookbook.syntax.simple import simple_cell

MAX_INLINE_CHARS = 65_536
MAX_NESTING = 60

_INTERRUPTS_ALL: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}


class PageParser(MarkdownIt):
    """markdown-it that keeps link targets as written and takes every target."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__("commonmark", {"maxNesting": MAX_NESTING})
        block, span = self.block.ruler, self.inline.ruler
        block.disable("reference")
        block.before("code", "interrupting_table", pipes.interrupting_table, {"alt": []})
        block.after("heading", "footnote", blocks.footnote_definition, _INTERRUPTS_ALL)
        block.after("footnote", "pipe_table", pipes.table, {"alt": ["paragraph", "reference"]})
        block.after("pipe_table", "definition", blocks.reference, {"alt": []})
        if dialect is Dialect.MDX:
            block.disable(["code", "html_block"])
            block.before("interrupting_table", "esm", esm.esm, {"alt": []})
            block.before("interrupting_table", "prose", blocks.prose, {"alt": []})
            block.before("pipe_table", "mdx_flow", blocks.flow, _INTERRUPTS_ALL)
            block.at("lheading", blocks.heading_underlined, {"alt": []})
            block.at("paragraph", blocks.paragraph, {"alt": []})
            span.disable(["autolink", "html_inline"])
            span.before("escape", "jsx", inline.jsx)
        else:
            span.at("html_inline", inline.html)
        span.at("text", inline.text)
        span.after("text", "literal_link", links.literal_link)
        span.at("escape", inline.escape)
        span.at("emphasis", inline.run)
        span.at("link", links.link)
        span.at("image", links.image)
        span.before("link", "footnote", inline.footnote)
        self.inline.ruler2.disable(["balance_pairs", "emphasis", "fragments_join"])

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802 - markdown-it's name
        return True


@cache
def parser(dialect: Dialect) -> PageParser:
    """Return the parser of a dialect; parsers hold no state of a page."""
    return PageParser(dialect)


@dataclass
class Document:
    """A page's blocks, and what its inline text may refer to."""

    page: Page
    tokens: list[Token]
    env: dict[str, Any] = field(default_factory=dict)

    @property
    def has_definitions(self) -> bool:
        """Whether the page defines link targets, so that `[text]` may be a link."""
        return bool(self.env.get("references"))

    def inline(self, content: str, line: int, *, in_table: bool = False) -> tuple[Node, ...]:
        """Parse inline text that begins on `line` (counted from 0); raises PageError."""
        simple = simple_cell(content) if in_table else None
        if simple is not None:
            return simple
        if len(content) > MAX_INLINE_CHARS:
            raise PageError(f"a text of {len(content):,} characters is longer than {MAX_INLINE_CHARS:,}", line + 1)
        tokens: list[Token] = []
        markdown = parser(self.page.dialect)
        try:
            markdown.inline.parse(content, markdown, self.env, tokens)
            return autolink.link_texts(spans.build(tokens, in_table=in_table))
        except MdxError as error:
            raise PageError(error.message, line + 1 + content.count("\n", 0, error.offset)) from None
        except RecursionError:
            raise PageError("the text nests too deeply to be read", line + 1) from None


def parse(page: Page) -> Document:
    """Parse a page's blocks; raises PageError where the page is not valid MDX."""
    if page.frontmatter_is_open:
        raise PageError("the frontmatter that opens here is never closed with `---`", 1)
    tokens: list[Token] = []
    env: dict[str, Any] = {}
    markdown = parser(page.dialect)
    try:
        markdown.block.parse(page.source, markdown, env, tokens)
    except RecursionError:
        raise PageError("the page nests too deeply to be read", 1) from None
    return Document(page, tokens, env)
