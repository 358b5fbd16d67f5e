"""The command line: what it writes is what runs.execute gives, and every mistake is one line."""

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import random_bits
from matplotlib import pyplot as plt
from test_likelihood import planted

from sdcpd import ROOT, __version__, cli, data, figures, likelihood, options, philox, runs, sampling
from sdcpd.algorithms import ALGORITHMS, LABELS
from sdcpd.progress import Progress
from sdcpd.runs import runfile

SMALL = ["--hidden", "3", "--epochs", "2", "--batch-size", "16", "--backend", "numpy"]
SMALL += ["--sample-steps", "5"]
RATES = {"cd": 0.04, "pcd": 0.015, "cg": 0.02, "sdcp": 0.01, "sdcp_d": 0.0012}
RATES_OF_BARS = {"cd": 0.2, "pcd": 0.15, "cg": 0.15, "sdcp": 0.13, "sdcp_d": 0.07}
OTHERS = {"cg": {"sliding_factor": 0.01}, "sdcp_d": {"epsilon": 0.1, "lambda_hessian": 0.0}}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SDCPD_PROGRESS_LOG", raising=False)
    yield
    plt.close("all")


@pytest.fixture
def own(monkeypatch):
    """``own.npz``: 40 training, 8 test images of 3 × 3 pixels. Drawing is slow: not here."""
    monkeypatch.setattr(figures, "trial_curves", lambda run: plt.figure(figsize=(1, 1)))
    monkeypatch.setattr(cli, "_draw", lambda run, images, n_steps, path: path.touch())
    train, test = (random_bits(n, 9, seed=n, p=0.3, dtype=np.uint8) for n in (40, 8))
    np.savez("own.npz", train=train, test=test)
    return "own.npz"


def train(*options, name="own.npz", output="run", small=True):
    return cli.main(["train", name, *(SMALL if small else ()), "--output", output, *options])


def settings(algorithm="sdcp_d", rates=RATES, **changes):
    """Those that the command line has on own data, where no option says otherwise."""
    inner = algorithm in ("sdcp", "sdcp_d")
    hyper = {"learning_rate": rates[algorithm]} | OTHERS.get(algorithm, {})
    return {
        "dataset": "own.npz",
        "algorithm": algorithm,
        "n_hidden": 500,
        "trials": 1,
        "epochs": 20.0,
        "batch_size": 200,
        "evaluate": {"every": 2.0, "also": [0]},
        "n_gibbs_steps": 4 if inner else 24,
        "n_inner_iterations": 6 if inner else 1,
        "hyperparameters": dict(sorted(hyper.items())),
        "ais": None,
        "seed": 2019,
    } | changes


IN_SMALL = {"n_hidden": 3, "epochs": 2.0, "batch_size": 16, "evaluate": {"every": 0.2, "also": [0]}}


def refused(capsys, *words, status=2):
    """A function that takes an exit status, and finds the one line that says why."""

    def check(found):
        errors = capsys.readouterr().err.splitlines()
        assert found == status and len(errors) == 1, (found, errors)
        assert errors[0].startswith("sdcpd: ") and "Traceback" not in errors[0]
        for word in words:
            assert word in errors[0], errors[0]

    return check


# ------------------------------------------------------------------------------- train


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_train_is_execute(algorithm, own, capsys):
    """Run file, pictures and table; numbers to the bit."""
    assert train("--algorithm", algorithm, "--trials", "2") == 0
    expected = runs.execute(settings(algorithm, trials=2, **IN_SMALL), None, "numpy")
    run = runs.load("run")
    assert run.settings == expected.settings
    pd.testing.assert_frame_equal(run.curve, expected.curve, check_dtype=False, rtol=1e-9, atol=0)
    for ours, others in zip(run.theta, expected.theta, strict=True):
        np.testing.assert_array_equal(ours, others)
    assert os.path.exists("run/curve.png") and os.path.exists("run/samples.png")
    printed = capsys.readouterr().out
    assert "40 training and 8 test images of 3 × 3 pixels\n" in printed and "exact" in printed
    last = run.curve[run.curve["update"] == 6].mean(numeric_only=True)
    row = rf"^\s*2 +2 +{last.train:.3f} +{last.test:.3f} +exact$"
    assert re.search(row, printed, re.MULTILINE), printed
    assert LABELS[algorithm] in printed and "In run: run.json, curve.csv, models.npz" in printed


def asked_for(monkeypatch, *arguments):
    """The settings that reach runs.execute."""
    seen = []

    def execute(settings, *_, **__):
        seen.append(settings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", execute)
        assert cli.main(["train", *arguments]) == 130
    return seen[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults(algorithm, own, monkeypatch):
    assert asked_for(monkeypatch, own, "--algorithm", algorithm) == settings(algorithm)
    inner = algorithm in ("sdcp", "sdcp_d")
    bars = {"dataset": "bars_and_stripes", "n_hidden": 4, "epochs": 5000.0, "batch_size": 16}
    bars |= {"n_gibbs_steps": 2, "n_inner_iterations": 2} if inner else {"n_gibbs_steps": 4}
    bars |= {"evaluate": {"every": 500.0, "also": [0]}}
    found = asked_for(monkeypatch, "bars_and_stripes", "--algorithm", algorithm)
    assert found == settings(algorithm, RATES_OF_BARS, **bars)


def test_defaults_are_documented(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    known = {str(value) for value in (*RATES.values(), *RATES_OF_BARS.values(), 500, 200, 2019)}
    described, _, examples = text.partition("examples:")
    assert not known & {
        *re.findall(r"[\d.]+", described)
    }  # the configuration has them, and may change
    assert (
        "workflow/config/paper.yaml" in examples
        and "as_published in its hyperparameters" in examples
    )
    for words in (
        "or sdcp_d (sdcp_d)",
        "training image (20; Bars & Stripes: as below)",
        "own (1)",
        "particles (100; exact if a layer has at most 20 units)",
        "temperatures (1000; exact if a layer has at most 20 units)",
    ):
        assert words in text, words
    assert ", ".join(ALGORITHMS).replace(", sdcp_d", " or sdcp_d") in text


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_everything_by_default(kind, capsys):
    """No option at all; sdcp_d by the fastest engine, and what follows it."""
    images = random_bits(40, 3, 3, seed=1, p=0.3, dtype=bool)
    np.save("own.npy", images) if kind == "npy" else np.savez("own.npz", images)
    name = f"own.{kind}"
    assert cli.main(["train", name]) == 0
    printed = capsys.readouterr()
    assert f"{name}: 36 training and 4 test images of 3 × 3 pixels (the last tenth" in printed.out
    assert "own.np" in printed.err and "finished" in printed.err
    folder = "results/by_hand/own-sdcp_d-500h"
    run = runs.load(folder)
    assert run.settings == settings(dataset=name) and len(run.curve) == 11
    assert cli.main(["evaluate", folder]) == cli.main(["sample", folder]) == 0
    pictures = [f"{folder}/curve.png", f"{folder}/samples.png", "samples.png"]
    curve, first, second = (plt.imread(picture).mean(-1) for picture in pictures)
    assert min(curve.shape) > 100 and curve.std() > 0.01
    # 25 images of black and white pixels, with grey between them; other numbers of steps.
    for picture in (first, second):
        assert all((np.abs(picture - level) < 0.02).mean() > 0.1 for level in (0.25, 0.625, 1))
    assert first.shape != second.shape or (first != second).any()


def test_names_that_no_run_file_can_hold(capsys):
    refused(capsys, "rename the file")(cli.main(["train", "x\udcff.npy"]))


def test_names_that_look_like_mathematics(capsys):
    name = r"x_$\frac$.npy"
    np.save(name, random_bits(40, 9, seed=1))
    assert cli.main(["train", name, *SMALL]) == 0
    assert r"S-DCP-D on x_$\frac$.npy" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["", "--ais-particles", "--ais-temperatures"])
def test_exact_only_where_it_can_be(option, monkeypatch):
    np.save("wide.npy", random_bits(20, 21, seed=1))
    given = [option, "30"] if option else []
    ais = {"n_particles": 100, "n_temperatures": 1000}
    ais |= {option.replace("--ais-", "n_"): 30} if option else {}
    assert asked_for(monkeypatch, "wide.npy", "--hidden", "21", *given)["ais"] == ais
    few = asked_for(monkeypatch, "wide.npy", "--hidden", "20", *given)["ais"]
    assert few == (ais if option else None)


def test_every_option_reaches_the_run(own, monkeypatch):
    options = {
        "--algorithm": ("algorithm", "sdcp_d"),
        "--hidden": ("n_hidden", 7),
        "--epochs": ("epochs", 1.5),
        "--batch-size": ("batch_size", 5),
        "--gibbs-steps": ("n_gibbs_steps", 3),
        "--inner-iterations": ("n_inner_iterations", 8),
        "--trials": ("trials", 4),
        "--seed": ("seed", -3),
    }
    given = [str(word) for option, (_, value) in options.items() for word in (option, value)]
    given += ["--learning-rate", "0.5", "--epsilon", "2", "--lambda-hessian", "0.25"]
    found = asked_for(monkeypatch, own, *given, "--evaluate-every", "0.5")
    hyper = {"learning_rate": 0.5, "epsilon": 2.0, "lambda_hessian": 0.25}
    expected = dict(options.values()) | {"hyperparameters": hyper}
    assert found == settings(**expected, evaluate={"every": 0.5, "also": [0]})
    found = asked_for(monkeypatch, own, "--algorithm", "cg", "--sliding-factor", "0.5")
    assert found["hyperparameters"] == {"learning_rate": 0.02, "sliding_factor": 0.5}


def content(folder, *names):
    return [(ROOT / folder / name).read_bytes() for name in names or ("curve.csv", "models.npz")]


def test_the_same_command_gives_the_same_bytes(own, tmp_path):
    """Wherever the file lies; another seed gives others."""
    assert train() == train(output="again") == train("--seed", "1", output="other") == 0
    (tmp_path / "data").mkdir()
    (tmp_path / "data/copy.npz").write_bytes((tmp_path / own).read_bytes())
    assert train(name="data/copy.npz", output="copy") == 0
    first, again, other, copy = (content(tmp_path / n) for n in ("run", "again", "other", "copy"))
    assert first == again == copy
    assert first[0] != other[0] and first[1] != other[1]
    assert content(tmp_path / "run", "run.json") == content(tmp_path / "again", "run.json")


def test_a_finished_run_is_kept(own, tmp_path, monkeypatch, capsys):
    """The same command draws it again; other options, or other data, do not overwrite it."""
    assert train() == 0
    (tmp_path / "run/curve.png").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", None)
        assert train() == 0 and (tmp_path / "run/curve.png").exists()
        assert "run holds this run already" in capsys.readouterr().out
        refused(capsys, "run holds another run", "--output")(train("--seed", "1"))
        np.savez(own, train=random_bits(40, 9, seed=3), test=random_bits(8, 9, seed=4))
        refused(capsys, "run holds another run")(train())
    assert train(output="new") == 0


def test_the_run_file_says_what_was_trained_on(own, tmp_path):
    import hashlib

    assert train() == 0
    about = json.loads((tmp_path / "run/run.json").read_text())
    assert about["settings"]["dataset"] == own
    digest = hashlib.sha256((tmp_path / own).read_bytes()).hexdigest()
    assert about["provenance"]["data_sha256"] == digest
    assert about["provenance"]["image_shape"] == [3, 3]
    small = ["train", "bars_and_stripes", *SMALL, "--output", "bars"]
    assert cli.main(small) == 0
    assert "data_sha256" not in json.loads((tmp_path / "bars/run.json").read_text())["provenance"]


KILLED = """
import os, signal, sys
from sdcpd import cli
from sdcpd.progress import Progress

def update(self, done):
    if done == 8:
        os.kill(os.getpid(), signal.SIGKILL)

Progress.update = update
cli.main(sys.argv[1:])
"""


def test_killed_training_goes_on(own, tmp_path):
    """Killed by a signal that nothing can catch; the same command goes on, with the same bytes."""
    options = ["--epochs", "4", "--algorithm", "pcd"]
    assert train(*options, output="undisturbed") == 0
    command = ["train", own, *SMALL, *options, "--output", "run"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list((tmp_path / "run").glob("checkpoint-*.npz"))
    assert not (tmp_path / "run/run.json").exists()
    assert cli.main(command) == 0
    assert runs.load("run").wall["resumed_at_update"] in (6, 7)
    assert content(tmp_path / "run") == content(tmp_path / "undisturbed")
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_an_interrupted_training_is_not_overwritten(own, tmp_path, monkeypatch, capsys):
    """By one of other settings or data: these need another folder; with its own it goes on."""

    def update(self, done):
        if done == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", update)
        line = refused(capsys, "sdcpd: interrupted: the same command goes on", status=130)
        line(train())
    others = refused(capsys, "run/checkpoint-", "interrupted: choose another folder, or delete it")
    others(train("--learning-rate", "0.3"))
    original = Path(own).read_bytes()
    np.savez(own, train=random_bits(40, 9, seed=3), test=random_bits(8, 9, seed=4))
    others(train())
    assert train(output="new") == 0
    Path(own).write_bytes(original)
    assert train() == 0
    assert 0 < runs.load("run").wall["resumed_at_update"] < 5


def test_seeds_in_a_loop_of_the_shell(own, tmp_path):
    """All at once into one folder: one is trained, the others are refused in one line."""
    command = [sys.executable, "-m", "sdcpd", "train", own, *SMALL, "--output", "run"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    all_of_them = [subprocess.Popen([*command, "--seed", str(i)], **how) for i in range(3)]
    ends = [(process.communicate(), process.returncode) for process in all_of_them]
    assert sorted(status for _, status in ends) == [0, 2, 2]
    (seed,) = [i for i, (_, status) in enumerate(ends) if status == 0]
    assert runs.load("run").settings["seed"] == seed
    for (_, errors), status in ends:
        if status:
            line = errors.splitlines()[-1]
            assert "run" in line and ("another" in line or "holds" in line)
            assert "Traceback" not in errors


def test_every_trial_diverged(own, tmp_path, capsys):
    assert train("--algorithm", "cd", "--learning-rate", "1e30", "--trials", "2") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("sdcpd: every trial diverged") and "--learning-rate" in last
    run = runs.load("run")
    assert (run.curve.status == "diverged").sum() == 2
    assert (tmp_path / "run/curve.png").exists() and not (tmp_path / "run/samples.png").exists()
    for command in ("evaluate", "sample"):
        refused(capsys, "run has no model: all trials diverged")(cli.main([command, "run"]))


def test_a_bug_is_not_hidden(own, monkeypatch):
    monkeypatch.setattr(runs, "execute", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train()


# --------------------------------------------------------------------------- own data


def test_forms_of_own_data():
    """The same images in every form that is allowed."""
    images = random_bits(30, 2, 8, seed=2, dtype=np.uint8)
    rows = images.reshape(30, 16)
    forms = [images, images.astype(bool), rows, rows.astype(np.int64), rows.astype(np.float64)]
    for array in [*forms, np.asfortranarray(rows), rows.astype(">f4"), rows.astype(np.float16)]:
        np.save("a.npy", array)
        np.savez("b.npz", anything=array)
        np.savez("c.npz", train=array, labels=np.array(["x"] * 30, dtype=object))
        for name in ("a.npy", "b.npz", "c.npz"):
            found = data.load(name)
            assert found.train.dtype == found.test.dtype == np.uint8 and found.held_out == 3
            np.testing.assert_array_equal(found.train, rows[:27])
            np.testing.assert_array_equal(found.test, rows[27:])
            assert found.image_shape == ((2, 8) if array.ndim == 3 else (4, 4))
            assert found.valid is None and found.grey is None
    np.savez("d.npz", train=images[:20], test=images[20:24], valid=images[24:])
    found = data.load("d.npz")
    parts = found.train, found.test, found.valid
    for part, expected in zip(parts, (rows[:20], rows[20:24], rows[24:]), strict=True):
        np.testing.assert_array_equal(part, expected)
    assert found.held_out == 0 and data.files_of("d.npz") == []


@pytest.mark.parametrize(("n", "held_out"), [(3, 1), (19, 1), (20, 2), (105, 10)])
def test_last_tenth_is_held_out(n, held_out):
    np.save("a.npy", random_bits(n, 7, seed=n))
    found = data.load("a.npy")
    assert (len(found.train), len(found.test), found.held_out) == (n - held_out, held_out, held_out)
    assert found.image_shape == (1, 7)  # 7 is no square


def test_images_that_are_no_squares(tmp_path):
    """Drawn and written in their own shape, from the run file alone."""
    np.save("own.npy", random_bits(20, 2, 5, seed=1))
    assert train(name="own.npy") == 0
    (tmp_path / "own.npy").unlink()
    assert cli.main(["sample", "run", "--steps", "3", "--output", "new/images.npz"]) == 0
    with np.load("new/images.npz") as file:
        assert file["images"].shape == (25, 2, 5) and file["images"].dtype == np.uint8


def test_own_files_are_never_unpickled(tmp_path, capsys):
    trap = tmp_path / "trap"

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    array = np.array([[Malicious()]], dtype=object)
    np.save("bad.npy", array)
    np.savez("bad.npz", train=array)
    for name in ("bad.npy", "bad.npz"):
        refused(capsys, f"{name}: damaged, or not numbers")(train(name=name))
        assert not trap.exists()
    np.load("bad.npy", allow_pickle=True)
    assert trap.exists()  # the trap works


# -------------------------------------------------------------------------- bad input


def saved(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def array_file(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


BITS = random_bits(20, 9, seed=1)
BAD_FILES = {  # name and content of a file, and what is said of it
    "grey": ("x.npy", array_file(BITS * 0.5), "0 or 1, not 0.5; binarize"),
    "grey levels": ("x.npy", array_file((BITS * 255).astype(np.uint8)), "0 or 1, not 255"),
    "negative": ("x.npy", array_file(-BITS), "0 or 1, not -1"),
    "NaN": ("x.npy", array_file(np.where(BITS, np.nan, 0)), "0 or 1, not nan"),
    "infinite": ("x.npy", array_file(np.where(BITS, np.inf, 0)), "0 or 1, not inf"),
    "grey test images": ("x.npz", saved(train=BITS, test=BITS / 3), "(test): every pixel"),
    "no rows": ("x.npy", array_file(BITS[0]), "expected rows of pixels"),
    "four axes": ("x.npy", array_file(BITS.reshape(20, 3, 3, 1)), "expected rows of pixels"),
    "a number": ("x.npy", array_file(np.float64(1)), "expected rows of pixels"),
    "no images": ("x.npy", array_file(BITS[:0]), "expected rows of pixels"),
    "no pixels": ("x.npy", array_file(BITS.reshape(20, 9, 1)[:, :0]), "expected rows of pixels"),
    "empty test": ("x.npz", saved(train=BITS, test=BITS[:0]), "(test): expected rows"),
    "one image": ("x.npy", array_file(BITS[:1]), "at least 2 training images"),
    "two images": ("x.npy", array_file(BITS[:2]), "at least 2 training images"),
    "one to train": ("x.npz", saved(train=BITS[:1], test=BITS), "at least 2 training images"),
    "objects": ("x.npy", None, "damaged, or not numbers"),
    "strings": ("x.npy", array_file(BITS.astype(str)), "must be numbers"),
    "complex": ("x.npy", array_file(BITS.astype(complex)), "must be numbers, 0 or 1, and not"),
    "records": ("x.npy", array_file(np.zeros(4, "i4,f4")), "must be numbers"),
    "dates": ("x.npy", array_file(BITS.astype(int).astype("M8[s]")), "must be numbers"),
    "other names": ("x.npz", saved(X=BITS, y=BITS), "no array train in it, but X, y"),
    "no arrays": ("x.npz", saved(), "no array train in it, but nothing"),
    "other sizes": ("x.npz", saved(train=BITS, test=BITS[:, 1:]), "same shape, not train (9,)"),
    "other shapes": (
        "x.npz",
        saved(train=BITS.reshape(20, 3, 3), test=BITS.reshape(20, 1, 9)),
        "same shape, not train (3, 3), test (1, 9)",
    ),
    "empty": ("x.npy", b"", "damaged, or not numbers"),
    "text": ("x.npy", b"0,1,1\n1,0,0\n", "damaged, or not numbers"),
    "cut": ("x.npy", array_file(BITS)[:-9], "damaged, or not numbers"),
    "cut header": ("x.npy", array_file(BITS)[:40], "damaged, or not numbers"),
    "wrong header": ("x.npy", array_file(BITS).replace(b"shape", b"sh\xffpe"), "damaged, or not"),
    "huge": ("x.npy", array_file(BITS).replace(b"(20, 9), ", b"(9**9**9)"), "damaged, or not"),
    "cut npz": ("x.npz", saved(train=BITS)[:-30], "damaged, or not numbers"),
    "wrong npz": (
        "x.npz",
        saved(train=BITS).replace(BITS.tobytes(), BITS[::-1].tobytes()),
        "damaged, or not numbers",
    ),
    "no array in it": ("x.npz", saved(train=BITS).replace(b"\x93NUMPY", b"\x93numpy"), "damaged"),
    "empty npz": ("x.npz", b"", "damaged, or not numbers"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file(case, tmp_path, capsys):
    name, content, words = BAD_FILES[case]
    if content is None:
        np.save(name, np.array([[0, "a"]] * 4, dtype=object))
    else:
        (tmp_path / name).write_bytes(content)
    refused(capsys, name, words)(train(name=name))
    assert [path.name for path in tmp_path.iterdir()] == [name]


BAD_OPTIONS = {
    "train nothing.npy": "nothing.npy cannot be read: No such file or directory; check the path",
    "train folder.npz": "folder.npz cannot be read: Is a directory",
    "train own.csv": "unknown dataset 'own.csv': choose one of bars_and_stripes, mnist",
    "train mist": "or a file that ends in .npy or .npz",
    "train own.npz_valid": "unknown dataset",
    "train own.npz --algorithm adam": "unknown --algorithm 'adam': choose one of cd, pcd",
    "train own.npz --hidden 0": "--hidden: must be a whole number above 0, not '0'",
    "train own.npz --hidden 2.5": "--hidden: must be a whole number above 0, not '2.5'",
    "train own.npz --trials -1": "--trials: must be a whole number above 0, not '-1'",
    "train own.npz --batch-size none": "--batch-size: must be a whole number",
    "train own.npz --gibbs-steps 0": "--gibbs-steps: must be",
    "train own.npz --inner-iterations 0": "--inner-iterations: must be",
    "train own.npz --epochs 0": "--epochs: must be a number above 0, not '0'",
    "train own.npz --epochs inf": "--epochs: must be",
    "train own.npz --evaluate-every -1": "--evaluate-every: must be",
    "train own.npz --learning-rate nan": "--learning-rate: must be a number above 0, not 'nan'",
    "train own.npz --epsilon 0": "--epsilon: must be a number above 0, not '0'",
    "train own.npz --lambda-hessian 1.1": "--lambda-hessian: must be a number from 0 to 1",
    "train own.npz --algorithm cg --sliding-factor -1": "--sliding-factor: must be",
    "train own.npz --seed x": "--seed: must be a whole number, not 'x'",
    "train own.npz --ais-particles 1": "--ais-particles: must be a whole number above 1, not '1'",
    "train own.npz --ais-temperatures 0": "--ais-temperatures: must be",
    "train own.npz --sample-steps 0": "--sample-steps: must be",
    "train own.npz --backend abacus": "unknown backend 'abacus': choose auto, numpy",
    "train own.npz --algorithm cd --epsilon 1": "--epsilon is an option of sdcp_d only",
    "train own.npz --algorithm sdcp --lambda-hessian 0": "--lambda-hessian is an option of sdcp_d",
    "train own.npz --sliding-factor 0.1": "--sliding-factor is an option of cg only: leave it out",
    "train own.npz --algorithm pcd --inner-iterations 2": "option of sdcp and sdcp_d only",
    "train own.npz --output own.npz": "cannot write to own.npz: File exists",
    "train own.npz --output own.npz/run": "cannot write to own.npz/run: Not a directory; choose",
    "train own.npz --hide 3": "unrecognized arguments: --hide 3",
    "train": "the following arguments are required: DATA",
    "": "the following arguments are required: COMMAND",
    "test own.npz": "invalid choice: 'test'",
    "evaluate nothing": "nothing is no run: give a folder",
    "evaluate own.npz": "own.npz is no run",
    "evaluate empty": "empty: damaged run file: delete it and run again",
    "sample nothing": "nothing is no run: give a folder",
    "sample run --output images.jpg": "--output must end in .png or .npz, not 'images.jpg'",
    "sample run --images 0": "--images: must be",
    "sample run --steps 0": "--steps: must be",
    "bench --hidden 0": "--hidden: must be",
    "bench --visible 0": "--visible: must be",
    "bench --seconds 0": "--seconds: must be",
    "bench --backend abacus": "unknown backend 'abacus'",
}


@pytest.mark.parametrize("command", BAD_OPTIONS)
def test_bad_option(command, own, tmp_path, capsys):
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/run.json").write_text("")
    words = command.split()
    if words[:1] == ["train"] and "abacus" in words:
        words += ["--output", "run"]
    refused(capsys, BAD_OPTIONS[command])(cli.main(words))
    assert not list(tmp_path.rglob("curve.csv"))


def test_unwritable_output_of_samples(own, capsys):
    assert train() == 0
    capsys.readouterr()
    for output in ("own.npz/new/images.png", "own.npz/images.npz"):
        line = refused(capsys, "cannot write to own.npz", "--output")
        line(cli.main(["sample", "run", "--output", output]))


def test_read_only_output(own, monkeypatch, capsys):
    """Found before the training, not after it."""

    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cli.tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(runs, "execute", None)
    refused(capsys, "cannot write to run: Read-only file system; choose another")(train())


def test_no_connection(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "DATA", tmp_path / "data")
    monkeypatch.delenv("SDCPD_DATA_MIRROR", raising=False)
    monkeypatch.setattr("sdcpd.data.download._get", lambda *_: "example.org: no connection")
    line = refused(capsys, "--epsilon is an option of sdcp_d only")  # nothing is fetched for it
    line(cli.main(["train", "mnist", "--algorithm", "cd", "--epsilon", "1"]))
    found = cli.main(["train", "mnist"])
    refused(capsys, "could not be had", "no connection", "SDCPD_DATA_MIRROR=<folder>")(found)


# --------------------------------------------------------- evaluate, sample and bench


def shown(capsys):
    """The table that was printed: a dict of column -> values in words."""
    lines = capsys.readouterr().out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.split()[:1] == ["trial"])
    rows = [line.split() for line in lines[first + 1 :] if line.split()[0].isdigit()]
    names = re.split(r" (?!Z|error)", " ".join(lines[first].split()))
    return lines[0], dict(zip(names, zip(*rows, strict=True), strict=True))


def test_evaluate(own, tmp_path, capsys):
    """Exactly as at the end of the curve; by AIS near it, with random numbers of the seed."""
    assert train("--trials", "3", "--learning-rate", "0.2", "--epochs", "20") == 0
    run = runs.load("run")
    end = run.curve[run.curve["update"] == run.curve["update"].max()]
    capsys.readouterr()
    assert cli.main(["evaluate", "run", "--backend", "numpy"]) == 0
    about, table = shown(capsys)
    assert about.startswith("S-DCP-D on own.npz, 3 hidden units") and about.endswith("exact")
    assert list(table) == ["trial", "log Z", "standard error", "ESS", "train", "test"]
    assert table["trial"] == ("0", "1", "2") and set(table["ESS"]) == {"exact"}
    for name, column in (("log_z", "log Z"), ("train", "train"), ("test", "test")):
        np.testing.assert_allclose([float(x) for x in table[column]], end[name], atol=1.1e-3)

    ais = ["evaluate", "run", "--backend", "numpy", "--ais-temperatures", "50"]
    found = []
    for seed in ((), ("--seed", "7"), ("--seed", "8")):
        assert cli.main([*ais, *seed]) == 0
        found.append(shown(capsys))
    assert found[0] == found[1] and "100 particles × 50 temperatures, seed 7" in found[0][0]
    assert found[1][1]["log Z"] != found[2][1]["log Z"]
    for _, table in found:
        errors = np.array([float(x) for x in table["standard error"]])
        assert (errors > 0).all()
        off = np.array([float(x) for x in table["log Z"]]) - end.log_z.to_numpy()
        assert (np.abs(off) < 5 * errors + 2e-3).all()
        trusted, bound = (np.array([float(x) for x in table[n]]) for n in ("trusted", "bound"))
        assert (bound <= end.log_z + 2e-3).all() and (np.abs(trusted - end.log_z) < 0.25).all()


def test_evaluate_warns_of_a_mode_that_ais_misses(own, tmp_path, capsys):
    """Planted, of 10 nats more than all the rest; and not where there is none."""
    assert train("--ais-temperatures", "50") == 0
    run = runs.load("run")
    for gain, warned in ((10, True), (-30, False)):
        theta, images, log_z = planted(784, 49, gain)
        np.savez(own, train=images[:450], test=images[450:])
        about = run.provenance | {"data_sha256": data.load(own).sha256}
        runfile.save(run._replace(theta=theta, provenance=about), tmp_path / "run")
        capsys.readouterr()
        assert cli.main(["evaluate", "run", "--ais-temperatures", "500"]) == 0
        printed = capsys.readouterr().out
        words = re.search(r"trial 0: AIS misses a mode .* by about ([\d.]+), certainly", printed)
        assert bool(words) == warned and ("trial 0:" in printed) == warned, printed
        if warned:
            assert abs(float(words[1]) - 10) < 0.5


def test_evaluate_by_ais_as_the_run(own, capsys):
    given = ["--ais-particles", "20", "--ais-temperatures", "30", "--epochs", "1"]
    assert train(*given) == 0
    printed = capsys.readouterr().out
    assert "by AIS with 20 particles × 30 temperatures" in printed and "doubtful" not in printed
    assert runs.load("run").settings["ais"] == {"n_particles": 20, "n_temperatures": 30}
    assert cli.main(["evaluate", "run"]) == 0
    about, table = shown(capsys)
    assert about.endswith("20 particles × 30 temperatures, seed 7") and "exact" not in table["ESS"]


def test_doubtful_estimates_are_marked(own, capsys, monkeypatch):
    monkeypatch.setattr(likelihood, "REPEATS", (1,))
    given = ["--ais-particles", "2", "--ais-temperatures", "2"]
    assert likelihood.MIN_ESS == 10 and train(*given) == 0
    assert "ESS below 10: doubtful" in capsys.readouterr().out
    assert cli.main(["evaluate", "run"]) == 0
    assert "ESS below 10: doubtful" in capsys.readouterr().out


def test_evaluate_on_which_data(own, tmp_path, capsys):
    """A file that has changed is refused, one that has moved is not, nor are other images."""
    assert train() == 0
    original = (tmp_path / own).read_bytes()
    (tmp_path / "moved.npz").write_bytes(original)
    evaluate = ["evaluate", "run", "--backend", "numpy"]
    tables = []
    for given in ([], ["--data", "moved.npz"]):
        capsys.readouterr()
        assert cli.main(evaluate + given) == 0
        tables.append(shown(capsys)[1])
    assert tables[0] == tables[1]
    assert cli.main([*evaluate, "--data", "bars_and_stripes"]) == 0
    assert shown(capsys)[1]["train"] != tables[0]["train"]
    np.save("wide.npy", random_bits(20, 10, seed=1))
    line = refused(capsys, "images of wide.npy have 10 pixels, but the models 9 visible units")
    line(cli.main([*evaluate, "--data", "wide.npy"]))
    np.savez(own, train=random_bits(40, 9, seed=1), test=random_bits(8, 9, seed=2))
    for given in ([], ["--data", own]):
        line = refused(capsys, "own.npz has changed since run was trained on it: train again")
        line(cli.main(evaluate + given))
    (tmp_path / own).unlink()
    refused(capsys, "own.npz cannot be read")(cli.main(evaluate))
    (tmp_path / own).write_bytes(original)
    assert cli.main(evaluate) == 0


def test_evaluate_marks_what_diverged(own, tmp_path, capsys):
    assert train("--trials", "2") == 0
    with np.load("run/models.npz") as file:
        arrays = dict(file)
    arrays["W"][0] = np.nan
    np.savez("run/models.npz", **arrays)
    curve = pd.read_csv("run/curve.csv")
    last = curve["update"].max()
    curve.loc[(curve["update"] == last) & (curve.trial == 0), "status"] = "diverged"
    curve.to_csv("run/curve.csv", index=False)
    capsys.readouterr()
    assert cli.main(["evaluate", "run"]) == 0
    _, table = shown(capsys)
    assert table["log Z"][0] == table["train"][0] == "diverged" and float(table["log Z"][1]) > 0


def test_sample(own, capsys):
    """Those of sampling.generate from the best model; they can be trained on again."""
    assert train("--trials", "3", "--learning-rate", "0.3") == 0
    command = ["sample", "run", "--images", "30", "--steps", "7", "--backend", "numpy"]
    found = []
    for seed in ("1", "1", "2"):
        assert cli.main([*command, "--seed", seed, "--output", "images.npz"]) == 0
        with np.load("images.npz") as file:
            found.append(file["images"])
    theta, _ = runs.load("run").best()
    named = runs.load("run").provenance["data_sha256"]
    keys = [philox.key(1, "samples", named, "sdcp_d", 3)]
    np.testing.assert_array_equal(found[0].reshape(1, 30, 9), sampling.generate(theta, keys, 30, 7))
    np.testing.assert_array_equal(found[0], found[1])
    assert (
        found[0] != found[2]
    ).any() and "images.npz: 30 images after 7" in capsys.readouterr().out
    assert train(name="images.npz", output="again") == 0
    assert cli.main([*command, "--output", "new/images.png"]) == 0


@pytest.mark.parametrize(("K", "d"), [(24, 6), (4, 4), (7, 1)])
def test_bench(K, d, capsys):
    size = ["--visible", "9", "--hidden", "4", "--batch-size", "5", "--seconds", "0.01"]
    assert cli.main(["bench", *size, "--gibbs-steps", str(K), "--backend", "numpy"]) == 0
    printed = capsys.readouterr().out
    assert "engine numpy, CPU" in printed
    assert f"9 × 4, mini-batches of 5, K = {K}, d = {d}, K′ = {K // d}\n" in printed
    labels = [f"{label}, an update" for label in LABELS.values()]
    for label in [*labels, "AIS, 100 particles × 1,000 temperatures"]:
        (value,) = re.findall(rf"^ *{re.escape(label)} +([0-9.e+]+)$", printed, re.MULTILINE)
        assert 0 < float(value) < 1e5
        seconds = 1e-3 * float(value)
        assert seconds > 1e-3 if label.startswith("AIS") else seconds < 1


def test_defaults_of_the_others():
    commands = cli.evaluate, cli.sample, cli.bench
    words = ["evaluate", "run"], ["sample", "run"], ["bench"]
    parsed = [vars(options.parse(each, commands)) for each in words]
    of_evaluate, of_sample, of_bench = ({k: str(v) for k, v in o.items()} for o in parsed)
    assert of_evaluate["seed"] == "7" and of_evaluate["n_particles"] == "None"
    assert (of_sample["images"], of_sample["steps"], of_sample["seed"]) == ("25", "5000", "2019")
    assert of_sample["output"] == "samples.png"
    sizes = [of_bench[name] for name in ("n_hidden", "visible", "batch_size", "n_gibbs_steps")]
    assert sizes == ["500", "784", "200", "24"] and of_bench["seconds"] == "5"
    assert {o["backend"] for o in (of_evaluate, of_sample, of_bench)} == {"auto"}


# ------------------------------------------------------------------------------- the place


def test_without_its_project(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    refused(capsys, "is installed without its project", "`uv run sdcpd`")(cli.main(["bench"]))
    with pytest.raises(SystemExit):
        cli.main(["--help"])


def test_in_the_folder_of_another_checkout(monkeypatch, capsys, tmp_path):
    (tmp_path / "src/sdcpd").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    refused(capsys, f"that of {ROOT}:", f"in {tmp_path}")(cli.main(["bench"]))
    monkeypatch.chdir(ROOT / "notebooks")
    refused(capsys, "nothing is no run")(cli.main(["sample", "nothing"]))


# ------------------------------------------------------------------------- as a program


def program(*arguments, code=("-m", "sdcpd")):
    command = [sys.executable, *code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_program(own):
    """Status, output and errors as a shell sees them."""
    assert program("--version").stdout == f"sdcpd {__version__}\n"
    wrong = program("train", "nothing.npy")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert re.fullmatch(r"sdcpd: nothing.npy cannot be read: .*\n", wrong.stderr)


@pytest.mark.parametrize(
    ("shell", "status", "last"),
    [
        ("| head -n 1", 0, "finished"),  # nobody reads on
        ("2>&1 | head -n 1", 0, ""),
        (">&- 2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
        ("> /dev/full", 2, "sdcpd: what was printed is lost: No space left on device"),
        ("", 0, "finished"),  # with few letters
    ],
)
def test_whatever_becomes_of_the_terminal(shell, status, last, own):
    """The training is finished and its files are written."""
    letters = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "sdcpd", "train", own, *SMALL, "--output", "run"]
    line = f"set -o pipefail; {shlex.join(words)} {shell}"
    done = subprocess.run(
        ["bash", "-c", line], env=os.environ | letters, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status and "Error" not in done.stderr, done.stderr
    assert (done.stderr.splitlines() or [""])[-1].endswith(last)
    assert (
        runs.load("run") and os.path.exists("run/curve.png") and os.path.exists("run/samples.png")
    )


def test_help_is_there_at_once():
    """Nothing that takes long to import."""
    code = "import sys, sdcpd.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(*{'numpy', 'pandas', 'numba', 'matplotlib', 'scipy'} & {*sys.modules})"
    lines = program(code=("-c", code)).stdout.splitlines()
    assert lines[0].startswith("usage: sdcpd") and lines[-1] == ""
    text = "\n".join(lines)
    for command in ("train", "evaluate", "sample", "bench"):
        assert f"    {command} " in text


def test_entry_point():
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert about["project"]["scripts"] == {"sdcpd": "sdcpd.cli:main"}


def test_progress_on_a_terminal(own, monkeypatch):
    """One line that is written again and again; whole lines where it is no terminal."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    progress = Progress("a title", 100, every=1e-9)
    for done in (1, 2):
        progress.update(done)
    progress.note(0.5)
    progress.close()
    cli.main(["train", "nothing.npy"])
    *passing, last, error = terminal.getvalue().split("\r\033[K")[1:]
    assert len(passing) == 3 and all(len(line) < 60 and "\n" not in line for line in passing)
    assert passing[-1].endswith("evaluation 50%") and last.endswith("finished\n")
    assert error.startswith("sdcpd: nothing.npy")
