"""What a result depends on: found in the code's imports, so that no list can go stale."""

import ast
import hashlib
import json
import re
from functools import cache
from pathlib import Path

from . import ROOT

PACKAGE = ROOT / "src/sdcpd"


@cache
def sources_of(notebook):
    """The files of the package that a notebook comes to use, and the published values it names."""
    code = "\n".join(_cells(notebook, "code"))
    return [*_with_imports(_imported(code)), *re.findall(r"workflow/reference/\w+\.\w+", code)]


@cache
def content_of(notebook):
    """A hash of its cells: not of outputs and execution counts, which Jupyter saves with them."""
    return hashlib.sha256(json.dumps(_cells(notebook)).encode()).hexdigest()[:16]


@cache
def sources_of_module(name):
    """The files of the package that a module or room of it comes to use, itself included."""
    start = {*(PACKAGE / name).glob("*.py")} or {PACKAGE / f"{name}.py"}
    return _with_imports(start | {PACKAGE / "__init__.py"})


@cache
def source_hash(module):
    """Of ``sources_of_module``."""
    digest = hashlib.sha256()
    for name in sources_of_module(module):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


def _with_imports(files):
    """These files and all that they import, from the project's root; and the GPU's kernels."""
    found, new = set(PACKAGE.rglob("*.cu")), files
    while new:
        found |= new
        new = set().union(*map(_imported_by, new)) - found
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def _cells(notebook, kind=None):
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if kind in (None, c["cell_type"])]


@cache
def _imported_by(path):
    return _imported(path.read_text(encoding="utf-8"))


def _imported(code):
    """The modules of the package that a piece of code imports, at its head or anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module.startswith("sdcpd")):
            names.update((node.module or "").split("."), (alias.name for alias in node.names))
    return {
        path
        for path in PACKAGE.rglob("*.py")
        if path.stem in names or (path.stem == "__init__" and path.parent.name in {*names, "sdcpd"})
    }
