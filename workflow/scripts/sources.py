"""What the result of a notebook depends on: found in its code, so that no list can go stale."""

import ast
import hashlib
import json
import re
from functools import cache
from pathlib import Path

PACKAGE = Path("src/sdcpd")


@cache
def sources_of(notebook):
    """The files of the package that a notebook comes to use, and the published values it names."""
    code = "\n".join(_cells(notebook, "code"))
    found, new = {*PACKAGE.glob("*.cu")}, _imported(code)
    while new:
        found |= new
        new = set().union(*map(_imported_by, new)) - found
    return [*sorted(map(str, found)), *re.findall(r"workflow/reference/\w+\.\w+", code)]


@cache
def content_of(notebook):
    """A hash of its cells: not of outputs and execution counts, which Jupyter saves with them."""
    return hashlib.sha256(json.dumps(_cells(notebook)).encode()).hexdigest()[:16]


def _cells(notebook, *kinds):
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] in (kinds or c["cell_type"])]


@cache
def _imported_by(path):
    return _imported(path.read_text(encoding="utf-8"))


def _imported(code):
    """The modules of the package that a piece of code imports, at its head or anywhere in it."""
    names = {"__init__"}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.startswith("sdcpd")):
            names.update((node.module or "").split("."), (alias.name for alias in node.names))
    return {path for name in names if (path := PACKAGE / f"{name}.py").exists()}
