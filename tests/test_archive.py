"""The archive: what is stored of a run, what is read back, and that a changed file is refused."""

import hashlib
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import run_of
from test_runs import rate, settings, sweep_of

from sdcpd import ROOT, runs, trusted
from sdcpd.runs import archive
from sdcpd.runs.archive import ArchiveError

TARGET = "runs/bars_and_stripes/as_published/cd-3h"
REAL = ROOT / "workflow/archive"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty archive."""
    monkeypatch.setattr(archive, "FOLDER", tmp_path / "archive")
    archive._sums.cache_clear()
    yield archive.FOLDER
    archive._sums.cache_clear()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A finished run of four trials, with a checkpoint that was left behind, and its folder."""
    where = tmp_path_factory.mktemp("original") / "run"
    run = runs.execute(settings("sdcp_d", trials=4, epochs=5, seed=2), where, "numpy")
    (where / "checkpoint-0.npz").write_bytes(b"half a run")
    return run, where


@pytest.fixture
def stored(folder, original):
    archive.store(original[1], TARGET)
    return folder / TARGET


def refuse(path, *words):
    """The one line in which an archived run is refused."""
    with pytest.raises(ArchiveError) as error:
        runs.load(path)
    message = str(error.value)
    for word in (*words, "git checkout workflow/archive", "runs=train"):
        assert word in message, message
    assert "\n" not in message


# ------------------------------------------------------------------- stored and loaded


def test_a_run_comes_back_with_the_model_of_its_best_trial(stored, original):
    run, where = original
    loaded = runs.load(stored)
    assert loaded.archived and not runs.load(where).archived
    assert sorted(p.name for p in stored.iterdir()) == sorted(runs.FILES)
    for part in set(runs.FILES) - {"models.npz"}:
        assert (stored / part).read_bytes() == (where / part).read_bytes()
    pd.testing.assert_frame_equal(loaded.curve, runs.load(where).curve, check_exact=True)
    assert (loaded.settings, loaded.provenance) == (run.settings, run.provenance)
    curve = run.curve
    best = int(curve[curve["update"] == curve["update"].max()].set_index("trial").test.idxmax())
    assert loaded.trials == (best,) != (0,)
    for found in (run, runs.load(where), loaded):
        model, trial = found.best()
        assert trial == best
        for ours, theirs in zip(model, run.theta, strict=True):
            assert ours.dtype == np.float32
            kept = theirs[best : best + 1]
            np.testing.assert_array_equal(ours, kept.astype(np.float16) if found.archived else kept)


def test_a_sweep_comes_back_as_it_was(folder, tmp_path):
    """And is refused once it is changed."""
    original, stored = tmp_path / "sweep", folder / "sweeps/cd"
    runs.execute_sweep(sweep_of("cd", 0.1, 0.2, 0.3), original, "numpy")
    archive.store(original, "sweeps/cd")
    assert sorted(p.name for p in stored.iterdir()) == sorted(runs.SWEEP_FILES)
    loaded, direct = runs.load_sweep(stored), runs.load_sweep(original)
    assert len(loaded) == 3 and all(run.archived for run in loaded)
    for ours, theirs in zip(loaded, direct, strict=True):
        assert ours.settings == theirs.settings
        pd.testing.assert_frame_equal(ours.curve, theirs.curve, check_exact=True)
    for part in runs.SWEEP_FILES:
        content = (stored / part).read_bytes()
        (stored / part).write_bytes(content + b"\n")
        with pytest.raises(ArchiveError, match=f"cd/{part} is not the file that was archived"):
            runs.load_sweep(stored)
        (stored / part).write_bytes(content)


def test_stored_again_the_files_are_the_same(stored, original):
    before = {p: p.read_bytes() for p in archive.FOLDER.rglob("*") if p.is_file()}
    archive.store(original[1], TARGET)
    assert {p: p.read_bytes() for p in archive.FOLDER.rglob("*") if p.is_file()} == before


# ---------------------------------------------------------------------- the best trial


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ([[-9, -5], [-9, -3], [-9, -4]], 1),
        ([[-9, -3], [-1, -5]], 0),  # at the end
        ([[-9, -3], [-1, np.nan]], 0),
        ([[-1, np.nan], [-9, -98], [-9, -99]], 1),
        ([[-9, np.nan], [-9, np.nan]], None),
    ],
)
def test_best_trial_is_the_best_at_the_end_that_has_not_diverged(test, expected):
    run = run_of([0, 1], test)
    run.curve.loc[run.curve.status == "diverged", "test"] = -1.0
    assert archive.best_trial(run.curve) == expected


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_whose_trials_have_all_diverged(folder, tmp_path):
    runs.execute(settings(**rate(1e3)), tmp_path / "run", "numpy")
    archive.store(tmp_path / "run", TARGET)
    loaded = runs.load(folder / TARGET)
    assert loaded.best() == (None, None) and loaded.trials == ()
    assert [array.shape for array in loaded.theta] == [(0, 3, 9), (0, 9), (0, 3)]
    assert set(loaded.curve.status) == {"ok", "diverged"}


# --------------------------------------------------------------------------- checksums


def listed(folder):
    """Name -> checksum, as SHA256SUMS has them."""
    lines = (folder / archive.SUMS).read_text().splitlines()
    assert all(line[64:66] == "  " for line in lines)
    return {line[66:]: line[:64] for line in lines}


def hashed(folder):
    """The same of the files themselves: all that belong to something that was computed."""
    parts = ("runs", "sweeps", "modes", "quality", "timing")
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] in parts
    }


def test_every_file_is_listed_with_its_checksum(stored, folder, original):
    archive.store(original[1], "runs/another/cd-3h")
    (folder / "README.md").write_text("for readers")
    archive.write_sums()
    assert listed(folder) == hashed(folder) and len(listed(folder)) == 8
    assert list(listed(folder)) == sorted(listed(folder))


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="no sha256sum on this machine")
def test_sha256sum_reads_the_list(stored, folder):
    check = ["sha256sum", "-c", "--quiet", archive.SUMS]
    assert subprocess.run(check, cwd=folder, capture_output=True).returncode == 0
    (stored / "wall.json").write_text("{}")
    done = subprocess.run(check, cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0 and f"{TARGET}/wall.json" in done.stdout


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("part", runs.FILES)
def test_one_changed_byte_is_noticed(part, place, stored):
    content = bytearray((stored / part).read_bytes())
    content[place] ^= 1
    (stored / part).write_bytes(content)
    refuse(stored, str(stored / part), "is not the file that was archived")


def test_an_unlisted_file_is_refused(stored, folder):
    copied = shutil.copytree(stored, stored.parent / "copied")
    refuse(copied, "/copied/")
    archive.write_sums()
    runs.load(copied)
    (folder / archive.SUMS).unlink()
    archive._sums.cache_clear()
    refuse(stored, TARGET)


def test_only_the_archive_has_checksums(folder, original, tmp_path):
    assert archive.holds(folder / "a/b") and archive.holds(folder / "a" / ".." / "b")
    assert not archive.holds(folder / ".." / "b") and not archive.holds(tmp_path / "archive2")
    (tmp_path / "any").write_bytes(b"any")
    assert archive.read(tmp_path / "any") == b"any"
    with pytest.raises(FileNotFoundError):
        archive.read(folder / "none")


# ------------------------------------------------------------------- the one in the clone


def test_the_archive_of_the_clone_is_whole():
    assert listed(REAL) == hashed(REAL)
    assert sum(path.stat().st_size for path in REAL.rglob("*") if path.is_file()) <= 30e6
    folders = [path.parent for path in REAL.rglob("run.json")]
    assert folders
    for where in folders:
        if (where / "models.npz").exists():
            run = runs.load(where)
            model, trial = run.best()
            assert run.archived and run.trials == (() if trial is None else (trial,))
            assert model is None or all(np.isfinite(array).all() for array in model)
        else:
            assert all(run.archived for run in runs.load_sweep(where))


def test_a_clone_has_the_same_bytes_whatever_git_does_to_line_endings(tmp_path):
    """Else the archive would be refused, and scripts would not run."""

    def git(*words):
        who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    files = (".gitattributes", "Snakefile", "workflow/archive/SHA256SUMS")
    for file in files:
        (tmp_path / "original" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / "original" / file)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        git("-C", "original", *words)
    git("clone", "-q", "-c", "core.autocrlf=true", "original", "clone")
    for file in files:
        assert (tmp_path / "clone" / file).read_bytes() == (ROOT / file).read_bytes()


def test_archived_large_models_have_a_bound_and_a_trusted_estimate():
    """Which agree with what several seeds find of the models."""
    for folder in sorted(REAL.glob("runs/*/as_published/*-500h")):
        run, experiment = runs.load(folder), folder.parts[-3]
        if experiment not in ("mnist", "caltech", "kannada"):  # ablations: no models
            continue
        name, (best,) = run.settings["algorithm"], run.trials
        end = run.curve[run.curve.trial == best].iloc[-1]
        assert end.bound < end.trusted_log_z + 0.1, folder
        assert abs(end.trusted_test - end.test - end.log_z + end.trusted_log_z) < 0.3  # halves
        place = REAL / f"modes/{experiment}-as_published-500h"
        measured = pd.read_csv(place / "measurements.csv").query("algorithm == @name")
        assert len(measured) == 5 and set(measured.trial) == {best}
        largest = measured.bound.max()
        assert max(end.bound, largest) < measured.trusted_log_z.max() + 0.5  # halves
        assert largest - end.trusted_log_z < trusted.AGREEMENT
        assert (measured.bound < measured.trusted_log_z + 0.1).all()
        assert abs(end.trusted_log_z - measured.trusted_log_z).max() < 4
        if experiment == "caltech":
            refuted = largest - end.log_z > trusted.AGREEMENT
            assert refuted == (name in ("cd", "sdcp", "sdcp_d"))
