"""Pages that read offline and on a phone: no script, font or style from elsewhere."""

import re
from html import escape

import nbformat
from jinja2 import Environment, FileSystemLoader
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter

from sdcpd import ROOT

TEMPLATES = Environment(
    loader=FileSystemLoader(ROOT / "workflow/site"),
    autoescape=lambda name: name.endswith(".html.j2"),
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template, **values):
    """A page from a template of workflow/site/."""
    style = HtmlFormatter().get_style_defs(".highlight")
    return TEMPLATES.get_template(template).render(highlighting=style, **values)


def notebook_page(path, name):
    """The page of an executed notebook."""
    notebook = nbformat.read(path, as_version=4)
    heading = name
    for cell in notebook.cells:  # an image is described by the heading above it
        if cell.cell_type == "markdown":
            heading = ([heading] + re.findall(r"^#+ (.+)", cell.source, re.M))[-1]
        cell.metadata["alt"] = f"{heading} ({name})"
    exporter = HTMLExporter(
        template_name="basic",
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    body, _ = exporter.from_notebook_node(notebook)
    # what pandas writes into each table, where HTML allows no style
    body = re.sub(r"<style.*?</style>", "", body, flags=re.S).replace('<table border="1"', "<table")
    body = re.sub(r"<td(?=[^>]*>[^<]{40})", "<td data-long", body)  # a column of text is not narrow
    return render("page.html.j2", title=name, body=body)


def with_link_back(html, target):
    """The page as a part of the site."""
    back = f'<nav><a href="{escape(target)}">← all figures and tables</a></nav>'
    return html.replace("<main>", f"<main>\n{back}", 1)
