"""One self-contained HTML page: text escaped, figures inside, nothing loaded from elsewhere, no script."""

import base64
import html
from collections.abc import Sequence
from typing import NamedTuple

from cavity.reports.figures import Figure, png
from cavity.reports.tables import Table, cell, numeric_columns

#: a browser that reads this runs no script and loads nothing, whatever stands in the page
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.note { color: #555; font-size: 0.92rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; }
th, td { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; }
"""


class Picture(NamedTuple):
    """A figure with its alternative text, for readers who cannot see it."""

    figure: Figure
    caption: str


#: what a page is made of: paragraphs, tables, pictures
Block = str | Table | Picture


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


def page(title: str, sections: Sequence[Section]) -> str:
    """The page as text. Everything handed in is data: none of it becomes markup."""
    lines = []
    for section in sections:
        lines += [f"<h2>{escaped(section.title)}</h2>", *map(block_markup, section.blocks)]
    body = "\n".join(lines)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{escaped(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def escaped(text: str) -> str:
    """Text that stays text, inside elements and inside quoted attributes; control characters become visible."""
    safe = "".join(mark if mark.isprintable() else f"\\x{ord(mark):02x}" for mark in text)
    return html.escape(safe, quote=True)


def block_markup(block: Block) -> str:
    """A paragraph, a table, or a figure as a PNG inside the page."""
    if isinstance(block, Table):
        return table_markup(block)
    if isinstance(block, Picture):
        data, caption = base64.b64encode(png(block.figure, dpi=110)).decode("ascii"), escaped(block.caption)
        return f'<p><img alt="{caption}" src="data:image/png;base64,{data}"></p>\n<p class="note">{caption}</p>'
    return f"<p>{escaped(block)}</p>"


def table_markup(table: Table) -> str:
    """A table; numbers stand to the right. A title is given by the section."""
    kinds = [' class="number"' if numeric else "" for numeric in numeric_columns(table)]

    def line(cells: Sequence[str], tag: str) -> str:
        marked = (f"<{tag}{kind}>{escaped(text)}</{tag}>" for text, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(marked)}</tr>"

    rows = "\n".join(line([cell(value) for value in row], "td") for row in table.rows)
    head = f"<thead>{line([str(name) for name in table.columns], 'th')}</thead>"
    note = f'\n<p class="note">{escaped(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{rows}\n</tbody></table></div>{note}'
