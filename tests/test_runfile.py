"""Run files: read as they were written, refused in one line, put together; where they come from."""

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from test_runs import AIS, HYPER, assert_same_files, execute, run_files, settings

from sdcpd import ROOT, runs
from sdcpd.engines.plain import PLAIN
from sdcpd.runs import runfile, setup, snapshots
from sdcpd.sources import source_hash


def test_run_file_round_trip(tmp_path):
    folder = tmp_path / "new" / "run"
    run = execute("sdcp_d", folder, ais=AIS)
    assert run_files(folder) == {*runs.FILES, snapshots.NAME}
    loaded = runs.load(folder)
    assert loaded.settings == run.settings == settings("sdcp_d", ais=AIS)
    assert (loaded.provenance, loaded.wall) == (run.provenance, run.wall)
    # Ten digits; whole epochs come back as integers.
    pd.testing.assert_frame_equal(loaded.curve, run.curve, check_dtype=False, rtol=1e-9, atol=0)
    for ours, original in zip(loaded.theta, run.theta, strict=True):
        assert ours.dtype == np.float32 and np.array_equal(ours, original)
    assert [a.shape for a in loaded.theta] == [(2, 3, 9), (2, 9), (2, 3)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    execute(folder=folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def refuse(folder, *words):
    """The one line in which a run file is refused."""
    with pytest.raises(runs.RunError) as error:
        runs.load(folder)
    message = str(error.value)
    for word in (str(folder), *words):
        assert word in message, message
    assert "\n" not in message, message


@pytest.mark.parametrize("part", runs.FILES)
def test_missing_part(copy, part):
    (copy / part).unlink()
    refuse(copy, f"{part} is missing: run it again")


DAMAGE = {  # part, and what becomes of its content
    **{f"empty {part}": (part, lambda content: b"") for part in runs.FILES},  # loss of power
    **{f"zeros {part}": (part, lambda content: bytes(len(content))) for part in runs.FILES},
    "cut run.json": ("run.json", lambda content: content[:-100]),
    "cut models.npz": ("models.npz", lambda content: content[:-100]),
    "no weights": ("models.npz", lambda content: content.replace(b"W.npy", b"X.npy")),
    "wrong weights": ("models.npz", lambda content: content[:300] + b"damaged" + content[307:]),
    "run.json of another kind": ("run.json", lambda content: b"[]"),
    "no provenance": ("run.json", lambda content: content.replace(b"provenance", b"province")),
    "not a text": ("run.json", lambda content: content.replace(b"cd", b"\xff\xfe")),
    "row too long": ("curve.csv", lambda content: content + b"0,1,2,3,4,5,6,7,8,9,10,11\n"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_part(copy, damage):
    part, change = DAMAGE[damage]
    content = (copy / part).read_bytes()
    assert change(content) != content
    (copy / part).write_bytes(change(content))
    refuse(copy, "damaged", "delete it and run again")


def test_other_format(copy):
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"format": 1}))
    refuse(copy, f"format 1, expected {runfile.FORMAT}", "run it again")


# ---------------------------------------------------------------------------- put together


def apart(given, *places, engine="numpy"):
    """Trained into each of these folders: the trial that is its name."""
    for place in places:
        trial = int(place.name)
        run = runs.execute(given, place, engine, trials=range(trial, trial + 1))
    return run


def test_more_trials_are_those_made_at_once(tmp_path):
    """Each trained apart, into a folder that stays; how many there will be decides nothing."""
    folders = [tmp_path / str(trial) for trial in range(3)]
    for folder, known in zip(folders, (2, 2, 5), strict=True):
        apart(settings("sdcp_d", trials=known), folder)
        assert apart(settings("sdcp_d", trials=9), folder).wall["resumed_at_update"] == 6
        apart(settings("sdcp_d", trials=known), folder)
    for n in (2, 3):
        runs.merge(folders[:n], tmp_path / "merged", n)
        execute("sdcp_d", tmp_path / "whole", trials=n)
        assert_same_files(tmp_path / "merged", tmp_path / "whole")


@pytest.mark.parametrize("algorithm", ["pcd", "sdcp_d"])
@pytest.mark.parametrize("sizes", [(1, 3, 1), (4, 1)], ids=str)
def test_trials_apart_are_those_at_once(algorithm, sizes, tmp_path):
    """The files, too, but for the times; whatever the order of the parts."""
    given = settings(algorithm, trials=5, ais=AIS)
    whole = runs.execute(given, tmp_path / "whole", "numpy")
    ends = np.cumsum(sizes)
    parts, folders = [], [tmp_path / f"part {end}" for end in ends]
    for folder, size, end in zip(folders, sizes, ends, strict=True):
        trials = range(end - size, end)
        parts.append(runs.execute(given, folder, "numpy", trials=trials))
        assert set(parts[-1].curve["trial"]) == {*trials} == {*parts[-1].trials}
    merged = runs.merge(folders[::-1], tmp_path / "merged")
    np.testing.assert_array_equal(merged.theta.W, whole.theta.W)
    assert_same_files(tmp_path / "merged", tmp_path / "whole")
    assert merged.wall["replicas_in_that_time"] == 5
    seconds = sum(part.wall["training_seconds"] for part in parts)
    assert merged.wall["training_seconds"] == pytest.approx(seconds)
    assert {*merged.wall} == {*whole.wall}
    ours, theirs = (snapshots.load(tmp_path / name) for name in ("merged", "whole"))
    for name in ("update", "epoch", "filters", "reconstructions", "images"):
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_trials_apart_of_own_data(tmp_path):
    np.save(tmp_path / "own.npy", np.eye(9, dtype=np.uint8))
    folders = [tmp_path / "0", tmp_path / "1"]
    apart(settings(dataset=str(tmp_path / "own.npy")), *folders)
    assert runs.merge(folders, tmp_path / "merged").image_shape == (3, 3)


@pytest.mark.parametrize("diverged", [0, 1])
def test_trials_apart_where_all_of_a_part_diverge(diverged, tmp_path, monkeypatch):
    """Columns that only the others have stand where they would stand."""
    given, original = settings(ais=AIS), setup.initialize
    replica = setup.Replica(HYPER["cd"], diverged)
    key = setup.Setup(runs.canonical(given), "numpy", None).key("init", replica)

    def broken(train_mean, n_hidden, keys, xp):
        theta = original(train_mean, n_hidden, keys, xp)
        theta.W[(keys == key).all(1)] = np.nan
        return theta

    monkeypatch.setattr(setup, "initialize", broken)
    runs.execute(given, tmp_path / "whole", "numpy")
    folders = [tmp_path / "0", tmp_path / "1"]
    apart(given, *folders)
    assert {*runs.load(folders[diverged]).curve.status} == {"diverged"}
    runs.merge(folders, tmp_path / "merged")
    assert_same_files(tmp_path / "merged", tmp_path / "whole", ["curve.csv", "models.npz"])


@pytest.mark.parametrize(
    ("places", "seed", "engine", "words"),
    [
        (["a/0", "b/0", "1"], 1, "numpy", r"the trials \[0, 0, 1\]"),
        (["1"], 1, "numpy", r"the trials \[1\]"),
        (["0", "1"], 2, "numpy", "differ in settings"),
        (["0", "1"], 1, "numba", "differ in .* engine"),
    ],
)
def test_what_is_no_whole_is_not_put_together(places, seed, engine, words, tmp_path):
    folders = [tmp_path / place for place in places]
    apart(settings(), *folders[:-1] or folders)
    apart(settings(seed=seed), folders[-1], engine=engine)
    with pytest.raises(runs.RunError, match=words) as error:
        runs.merge(folders, tmp_path / "merged")
    assert "\n" not in str(error.value) and not (tmp_path / "merged").exists()


def test_trials_of_several_versions_of_the_code(tmp_path):
    """Only where trials are added to a run; each version is named once. Of devices there may be
    several anyway."""
    folders = [tmp_path / str(trial) for trial in range(3)]
    apart(settings(trials=3), *folders)
    for trial, folder in enumerate(folders):
        about = json.loads((folder / "run.json").read_text())
        trained = {"trained_by": "old" if trial < 2 else "new", "device": f"CPU {trial}"}
        about["provenance"] |= trained
        (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(runs.RunError, match="differ in settings, code or engine"):
        runs.merge(folders, tmp_path / "merged")
    two = runs.merge(folders[:2], tmp_path / "two", 2)
    assert two.provenance["device"] == "CPU 0 + CPU 1"
    merged = runs.merge([tmp_path / "two", folders[2]], tmp_path / "merged", 3)
    assert merged.provenance["trained_by"] == "old + new" and merged.settings["trials"] == 3
    again = json.loads((tmp_path / "merged/run.json").read_text())
    assert again["provenance"]["trained_by"] == "old + new"


# --------------------------------------------------------------------------- provenance


def test_provenance():
    about = runs.provenance(PLAIN)
    assert about["device"].startswith("CPU ") and about["engine"] == "numpy"
    assert "float32" in about["precision"]
    assert about["numpy"] == np.__version__
    assert re.fullmatch(r"3\.\d+\.\d+\S*", about["python"])
    assert re.fullmatch("[0-9a-f]{40}|unknown", about["commit"])
    assert about["source"] == source_hash("runs")
    assert about["sdcpd"] in (ROOT / "pyproject.toml").read_text()


def test_commit_is_that_of_the_project_and_of_no_other(tmp_path, monkeypatch):
    """Not of a repository around a folder that is no clone, nor of one that GIT_DIR names."""

    def repository(folder):
        git = ["git", "-C", folder, "-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", folder.name], check=True)
        done = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        return done.stdout.strip()

    (tmp_path / "outer/project").mkdir(parents=True)
    repository(tmp_path / "outer")
    monkeypatch.setattr(runfile, "source_hash", lambda *names: "")
    monkeypatch.setattr(runfile, "ROOT", tmp_path / "outer/project")
    assert runs.provenance(PLAIN)["commit"] == "unknown"  # no clone
    own = repository(tmp_path / "outer/project")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "outer/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "outer"))
    assert runs.provenance(PLAIN)["commit"] == own
