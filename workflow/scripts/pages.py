"""Pages that read offline and on a phone: no script, font or style from elsewhere."""

import re
from html import escape

import nbformat
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter

STYLE = """
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; margin: 1.6em 0 .5em; }
h1 { margin-top: .5em; }
h2 { border-bottom: 1px solid #ccc; }
a { color: #0645ad; }
img { max-width: 100%; height: auto; }
code, pre { font: .875em/1.4 ui-monospace, monospace; }
pre { margin: .5em 0; padding: .5em .75em; background: #f6f6f6; overflow-x: auto; }
table { display: block; width: max-content; max-width: 100%; margin: .5em 0; overflow-x: auto;
  border-collapse: collapse; font-size: .875em; }
th, td { padding: .2em .6em; border: 1px solid #ddd; text-align: left; vertical-align: top; }
th { background: #f6f6f6; }
td[data-long] { min-width: 10em; }
ul { padding-left: 1.25em; } nav ul { columns: 18rem; }
.output pre { background: #fff; padding: 0; }
@media (max-width: 40rem) { th, td { min-width: 4.5em; } }
"""


def page(title, body):
    """A whole page: ``title`` is text, ``body`` HTML."""
    body = re.sub(r"<td(?=[^>]*>[^<]{40})", "<td data-long", body)  # a column of text is not narrow
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}{HtmlFormatter().get_style_defs(".highlight")}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


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
    return page(name, f"<p><code>{escape(name)}</code></p>\n{body}")


def with_link_back(html, target):
    """The page as a part of the site."""
    back = f'<nav><a href="{escape(target)}">← all figures and tables</a></nav>'
    return html.replace("<main>", f"<main>\n{back}", 1)
