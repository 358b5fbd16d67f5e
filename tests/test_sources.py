"""What a notebook's result depends on is found in its code."""

import ast
import importlib
import json
import shutil
import subprocess
import sys

import pytest

import sdcpd
from sdcpd import ROOT, sources

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
TRAINING = {"training.py", "algorithms.py", "rbm.py", "plain.py", "cpu_kernels.py", "kernels.cu"}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_module_that_a_notebook_loads_is_found(name):
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
def test_kernels_and_lazy_imports_are_found(name):
    found = {file.rpartition("/")[2] for file in sources.sources_of(f"notebooks/{name}.ipynb")}
    assert {*TRAINING, "__init__.py"} <= found  # cpu.py imports its kernels when asked to
    assert "cli.py" not in found
    assert ("published_curves_2019.csv" in found) == (name in ("curves", "tune", "claims"))


def test_content_is_that_of_the_cells(tmp_path):
    def content(**changes):
        cell = {"cell_type": "code", "source": ["a = 1\n"], "outputs": [], "execution_count": None}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.ipynb"
        path.write_text(json.dumps({"cells": [cell | changes]}), encoding="utf-8")
        return sources.content_of(path)

    assert content() == content(outputs=[{"text": "1"}], execution_count=3)
    assert content() != content(source=["a = 2\n"])


def test_what_a_run_depends_on():
    """All that decides its numbers; nothing that draws, judges or chooses."""
    found = {file.rpartition("/")[2] for file in sources.sources_of_module("runs")}
    assert (
        TRAINING | {"likelihood.py", "readers.py", "own.py", "runfile.py", "snapshots.py"} <= found
    )
    assert not {"curves.py", "claims.py", "tuning.py", "timing.py", "cli.py"} & found
    training = {file.rpartition("/")[2] for file in sources.sources_of_module("training")}
    assert training >= TRAINING and not {"likelihood.py", "trainer.py", "readers.py"} & training


def test_source_hash_follows_each_line(tmp_path):
    """In a copy: a change in any module that counts changes it, one in another does not."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import sys
from sdcpd import sources
print(sources.source_hash("runs"))
for path in sorted(sources.PACKAGE.rglob("*.[pc][yu]")):
    before = path.read_bytes()
    path.write_bytes(before + b"\\n")
    sources.source_hash.cache_clear()
    print(path.relative_to(sources.ROOT).as_posix(), sources.source_hash("runs"))
    path.write_bytes(before)
"""
    how = {"capture_output": True, "text": True, "cwd": tmp_path, "check": True}
    environment = {"PYTHONPATH": str(tmp_path / "src")}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, **how).stdout
    first, *others = printed.splitlines()
    changed = {name for name, found in map(str.split, others) if found != first}
    assert changed == {*sources.sources_of_module("runs")} and len(changed) < len(others)


def test_the_module_map_is_that_of_the_imports():
    """Every module is in it, and each imports only from those above it."""
    rows = [line.split() for line in sdcpd.__doc__.splitlines()]
    between = [n for n, row in enumerate(rows) if row and set(row[0]) == {"="}]
    order = [row[0] for row in rows[between[0] + 1 : between[1]]]
    package, others = sources.PACKAGE, {"__init__", "__main__", "__pycache__"}
    there = {p.stem if p.is_file() else p.name for p in package.iterdir()}
    assert {*order} == there - others and len({*order}) == len(order)
    for position, name in enumerate(order):
        path = package / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            level = 2 if path.is_dir() else 1  # of imports from the package itself
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level == level:
                    used = [node.module] if node.module else [alias.name for alias in node.names]
                    known = {each.split(".")[0] for each in used} & {*order}
                    assert known <= {*order[:position]}, (file.name, known - {*order[:position]})


@pytest.mark.parametrize("room", ["data", "runs", "study", "figures"])
def test_the_map_of_a_room_is_that_of_its_imports(room):
    """As above, within a folder of the package."""
    folder = sources.PACKAGE / room
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    words = (
        line.split()[:1] for line in importlib.import_module(f"sdcpd.{room}").__doc__.split("\n")
    )
    order = [word for (word,) in filter(None, words) if word in there]
    assert {*order} == there and len({*order}) == len(order)
    for position, name in enumerate(order):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                used = {node.module} if node.module else {alias.name for alias in node.names}
                assert used <= {*order[:position]}, (name, used)
