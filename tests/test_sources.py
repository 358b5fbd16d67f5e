"""What a notebook's result depends on is found in its code."""

import ast
import importlib
import json
import shutil
import subprocess
import sys

import pytest

from sdcpd import ROOT, sources

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
TRAINING = {"training.py", "algorithms.py", "rbm.py", "plain.py", "cpu_kernels.py", "kernels.cu"}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(ROOT)


def names(files):
    return {file.rpartition("/")[2] for file in files}


def test_all_that_a_notebook_uses_is_found():
    """Of modules, against Python itself: what its imports, carried out, leave in sys.modules."""
    imports = {}
    for name in NOTEBOOKS:
        cells = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        lines = [line for c in cells if c["cell_type"] == "code" for line in c["source"]]
        imports[name] = [line for line in lines if line.startswith(("import ", "from "))]
    code = f"""
import json, sys
loaded = {{}}
for name, lines in {imports}.items():
    ours = [module for module in sys.modules if module.split(".")[0] == "sdcpd"]
    for module in ours:
        del sys.modules[module]
    exec("".join(lines))
    ours = [module for module in sys.modules if module.split(".")[0] == "sdcpd"]
    loaded[name] = [sys.modules[module].__file__ for module in ours]
print(json.dumps(loaded))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, loaded in json.loads(done.stdout).items():
        files = sources.sources_of(f"notebooks/{name}.ipynb")
        assert len(loaded) > 5 and {*loaded} <= {str(ROOT / file) for file in files}, name
        found = names(files)
        assert found >= TRAINING and "cli.py" not in found  # cpu.py imports its kernels lazily
        assert ("published_curves_2019.csv" in found) == (name in ("curves", "tune", "claims"))


def test_what_a_run_depends_on():
    """All that decides its numbers; nothing that draws, judges or chooses."""
    found = names(sources.sources_of_module("runs"))
    others = {"likelihood.py", "readers.py", "own.py", "runfile.py", "snapshots.py"}
    assert TRAINING | others <= found
    assert not {"curves.py", "claims.py", "tuning.py", "timing.py", "cli.py"} & found
    training = names(sources.sources_of_module("training"))
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


def imported(path, level):
    """The modules that a file imports from its own package (level 1) or that above it (2)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == level:
            used = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {name.split(".")[0] for name in used}
    return found


@pytest.mark.parametrize("package", ["", "data", "runs", "study", "figures"])
def test_the_map_of_modules_is_that_of_the_imports(package):
    """Every module and room of a package is in it, and imports only from those above it."""
    folder = sources.PACKAGE / package
    there = {path.stem for path in folder.iterdir() if path.stem[0] != "_"}
    text = importlib.import_module(f"sdcpd.{package}".rstrip(".")).__doc__
    words = [line.split()[0] for line in text.splitlines() if line.strip()]
    order = [word for word in words if word in there]
    assert {*order} == there and len({*order}) == len(order)
    for position, name in enumerate(order):
        room = folder / name
        files = sorted(room.glob("*.py")) if room.is_dir() else [room.with_suffix(".py")]
        for file in files:
            used = imported(file, level=2 if room.is_dir() else 1)
            assert used <= {*order[:position], "ROOT", "__version__"}, (file.name, used)
