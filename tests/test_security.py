"""Nothing that is loaded can run code, and nothing is downloaded unchecked."""

import ast
import json
import re

import pytest
import yaml
from scipy import io

from sdcpd import ROOT, data

CATALOGUE = yaml.safe_load((ROOT / "workflow/config/datasets.yaml").read_text())
FOLDERS = ("src", "workflow", "notebooks", "benchmarks")
UNPICKLE = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}


def code():
    """path -> syntax tree of all Python code, that of notebooks too."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    texts = {path: path.read_text() for path in paths}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        texts[path] = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    assert len(texts) > 40
    return {path: ast.parse(text) for path, text in texts.items()}


def calls(tree, *names):
    """The calls of functions and methods of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in names:
                yield node


def test_nothing_is_unpickled():
    n_loads = 0
    for path, tree in code().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
                assert not UNPICKLE & {str(module).split(".")[0] for module in modules}, path
        assert not list(calls(tree, "read_pickle", "eval", "exec", "unsafe_load")), path
        for call in calls(tree, "load"):
            if ast.unparse(call.func) in ("np.load", "numpy.load", "xp.load"):
                given = {k.arg: ast.unparse(k.value) for k in call.keywords}
                assert given.get("allow_pickle") == "False", f"{path}:{call.lineno}"
                n_loads += 1
            assert ast.unparse(call.func) != "yaml.load", f"{path}:{call.lineno}"
    assert n_loads >= 5


def test_every_download_has_https_and_a_checksum():
    for name, entry in CATALOGUE["files"].items():
        assert entry["urls"] and all(url.startswith("https://") for url in entry["urls"]), name
        assert re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]), name
    named = [f for entry in CATALOGUE["datasets"].values() for f in entry["files"]]
    named += [f for files in CATALOGUE["labelled"].values() for f in files]
    assert set(named) == set(CATALOGUE["files"])


@pytest.mark.parametrize("load", [data.load, data.load_labelled])
@pytest.mark.parametrize("name", ["mnist", "caltech101_silhouettes"])
def test_matlab_files_are_read_after_their_checksum_only(load, name, tmp_path, monkeypatch):
    for file in {*data.files_of(name), *data.labelled_files_of(name)}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"MATLAB 5.0 MAT-file, or what looks like one")

    def never(*_, **__):
        raise AssertionError("read before its checksum")

    monkeypatch.setattr(io, "loadmat", never)
    with pytest.raises(data.DataError, match="is damaged"):
        load(name, tmp_path)


def test_text_files_are_utf_8_whatever_the_locale_is():
    for path, tree in code().items():
        for call in calls(tree, "open", "fdopen", "read_text", "write_text"):
            named = {keyword.arg for keyword in call.keywords}
            modes = {part.value for part in call.args if isinstance(part, ast.Constant)}
            of_bytes = ast.unparse(call.func) in ("os.open", "gzip.open")
            of_bytes |= bool(modes & {"rb", "wb", "ab"})
            assert of_bytes or "encoding" in named, f"{path}: {ast.unparse(call)}"
    for path in (ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"\b(open|read_text|write_text)\(", line):
                assert "encoding" in line, f"{path}: {line}"
