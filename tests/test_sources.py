"""What a notebook's result depends on is found in its code."""

import importlib
import json
import subprocess
import sys

import pytest

from sdcpd import ROOT, runs

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def sources(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "workflow/scripts")
    return importlib.import_module("sources")


@pytest.mark.parametrize("name", ["sensitivity", "timing", "claims"])
def test_every_module_that_a_notebook_loads_is_found(name, sources):
    """Against Python itself: what its imports, carried out, leave in sys.modules."""
    path = ROOT / f"notebooks/{name}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line for c in cells if c["cell_type"] == "code" for line in c["source"]]
    imports = "".join(line for line in lines if line.startswith(("import ", "from ")))
    tell = "print(*(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'sdcpd'))"
    code = f"import sys\n{imports}\n{tell}"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    loaded = {str(file) for file in loaded.stdout.split()}
    assert len(loaded) > 5
    assert loaded <= {str(ROOT / file) for file in sources.sources_of(path)}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_kernels_and_lazy_imports_are_found(name, sources):
    found = {file.rpartition("/")[2] for file in sources.sources_of(f"notebooks/{name}.ipynb")}
    assert {*runs.SOURCES, "__init__.py"} <= found  # engine.py imports compiled.py when asked to
    assert "cli.py" not in found
    assert ("published_curves_2019.csv" in found) == (name in ("curves", "tune", "claims"))


def test_content_is_that_of_the_cells(sources, tmp_path):
    def content(**changes):
        cell = {"cell_type": "code", "source": ["a = 1\n"], "outputs": [], "execution_count": None}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.ipynb"
        path.write_text(json.dumps({"cells": [cell | changes]}), encoding="utf-8")
        return sources.content_of(path)

    assert content() == content(outputs=[{"text": "1"}], execution_count=3)
    assert content() != content(source=["a = 2\n"])
