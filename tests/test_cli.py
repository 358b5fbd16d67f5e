"""The command line: what it writes is what runs.execute gives, and every mistake is one line."""

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import requests
from conftest import random_bits
from matplotlib import pyplot as plt
from test_trusted import planted

from sdcpd import ROOT, __version__, cli, data, figures, options, philox, runs, sampling
from sdcpd.algorithms import ALGORITHMS, LABELS
from sdcpd.log_z import MIN_ESS
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
def own_file(monkeypatch):
    """``own.npz``: 40 training, 8 test images of 3 × 3 pixels. Drawing is slow: not here."""
    monkeypatch.setattr(figures, "trial_curves", lambda run: plt.figure(figsize=(1, 1)))
    monkeypatch.setattr(cli, "_draw", lambda run, images, n_steps, path: path.touch())
    train, test = (random_bits(n, 9, seed=n, p=0.3, dtype=np.uint8) for n in (40, 8))
    np.savez("own.npz", train=train, test=test)
    return "own.npz"


def train(*options, name="own.npz", output="run"):
    return cli.main(["train", name, *SMALL, "--output", output, *options])


def settings(algorithm="sdcp_d", rates=RATES, **changes):
    """Those that the command line has on own data, where no option says otherwise."""
    inner = algorithm in ("sdcp", "sdcp_d")
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
        "hyperparameters": {"learning_rate": rates[algorithm]} | OTHERS.get(algorithm, {}),
        "ais": None,
        "seed": 2019,
    } | changes


IN_SMALL = {"n_hidden": 3, "epochs": 2.0, "batch_size": 16, "evaluate": {"every": 0.2, "also": [0]}}


@pytest.fixture
def refused(capsys):
    """A function that takes an exit status, and finds the one line that says why."""

    def check(status, *words, expected=2):
        errors = capsys.readouterr().err.splitlines()
        assert status == expected and len(errors) == 1, (status, errors)
        assert errors[0].startswith("sdcpd: ") and "Traceback" not in errors[0]
        for word in words:
            assert word in errors[0]

    return check


# ------------------------------------------------------------------------------- train


def test_train_is_execute(own_file, capsys):
    """Run file, pictures and table; numbers to the bit."""
    assert train("--algorithm", "pcd", "--trials", "2") == 0
    expected = runs.execute(settings("pcd", trials=2, **IN_SMALL), None, "numpy")
    run = runs.load("run")
    assert run.settings == expected.settings
    pd.testing.assert_frame_equal(run.curve, expected.curve, check_dtype=False, rtol=1e-9, atol=0)
    for ours, others in zip(run.theta, expected.theta, strict=True):
        np.testing.assert_array_equal(ours, others)
    assert os.path.exists("run/curve.png") and os.path.exists("run/samples.png")
    printed = capsys.readouterr().out
    assert "40 training and 8 test images of 3 × 3 pixels\n" in printed
    assert "PCD on own.npz" in printed
    last = run.curve[run.curve["update"] == 6].mean(numeric_only=True)
    row = rf"^\s*2 +2 +{last.train:.3f} +{last.test:.3f} +exact$"
    assert re.search(row, printed, re.MULTILINE), printed


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
def test_defaults(algorithm, own_file, monkeypatch):
    assert asked_for(monkeypatch, own_file, "--algorithm", algorithm) == settings(algorithm)
    inner = algorithm in ("sdcp", "sdcp_d")
    bars = {"dataset": "bars_and_stripes", "n_hidden": 4, "epochs": 5000.0, "batch_size": 16}
    bars |= {"n_gibbs_steps": 2, "n_inner_iterations": 2} if inner else {"n_gibbs_steps": 4}
    bars |= {"evaluate": {"every": 500.0, "also": [0]}}
    found = asked_for(monkeypatch, "bars_and_stripes", "--algorithm", algorithm)
    assert found == settings(algorithm, RATES_OF_BARS, **bars)


def test_everything_by_default(capsys):
    """No option at all; sdcp_d by the fastest engine, and what follows it. The name of the data
    looks like mathematics to what draws the titles."""
    name = r"x_$\frac$.npy"
    np.save(name, random_bits(40, 3, 3, seed=1, p=0.3, dtype=bool))
    assert cli.main(["train", name]) == 0
    printed = capsys.readouterr()
    assert f"{name}: 36 training and 4 test images of 3 × 3 pixels (the last tenth" in printed.out
    assert name in printed.err and "finished" in printed.err
    folder = r"results/by_hand/x_$\frac$-sdcp_d-500h"
    run = runs.load(folder)
    assert run.settings == settings(dataset=name) and len(run.curve) == 11
    assert cli.main(["evaluate", folder]) == cli.main(["sample", folder]) == 0
    curve = plt.imread(f"{folder}/curve.png").mean(-1)
    assert min(curve.shape) > 100 and curve.std() > 0.01
    # 25 images of black and white pixels, with grey between them.
    for path in (f"{folder}/samples.png", "samples.png"):
        picture = plt.imread(path).mean(-1)
        for level in (0.25, 0.625, 1):
            assert (np.abs(picture - level) < 0.02).mean() > 0.1


@pytest.mark.parametrize("option", ["", "--ais-particles", "--ais-temperatures"])
def test_exact_only_where_it_can_be(option, monkeypatch):
    np.save("wide.npy", random_bits(20, 21, seed=1))
    given = [option, "30"] if option else []
    ais = {"n_particles": 100, "n_temperatures": 1000}
    ais |= {option.replace("--ais-", "n_"): 30} if option else {}
    assert asked_for(monkeypatch, "wide.npy", "--hidden", "21", *given)["ais"] == ais
    few = asked_for(monkeypatch, "wide.npy", "--hidden", "20", *given)["ais"]
    assert few == (ais if option else None)


def test_every_option_reaches_the_run(own_file, monkeypatch):
    given = "--hidden 7 --epochs 1.5 --batch-size 5 --gibbs-steps 3 --inner-iterations 8 --trials 4"
    given += " --seed -3 --learning-rate 0.5 --epsilon 2 --lambda-hessian 0.25 --evaluate-every 0.5"
    expected = {"n_hidden": 7, "epochs": 1.5, "batch_size": 5, "n_gibbs_steps": 3, "trials": 4}
    expected |= {"n_inner_iterations": 8, "seed": -3, "evaluate": {"every": 0.5, "also": [0]}}
    expected["hyperparameters"] = {"learning_rate": 0.5, "epsilon": 2.0, "lambda_hessian": 0.25}
    assert asked_for(monkeypatch, own_file, *given.split()) == settings(**expected)
    found = asked_for(monkeypatch, own_file, "--algorithm", "cg", "--sliding-factor", "0.5")
    assert found["hyperparameters"] == {"learning_rate": 0.02, "sliding_factor": 0.5}


def content(folder):
    return [Path(folder, name).read_bytes() for name in ("curve.csv", "models.npz")]


def test_an_own_file_is_known_by_its_checksum(own_file):
    """Wherever it lies, the same command gives the same bytes."""
    Path("data").mkdir()
    shutil.copy(own_file, "data/copy.npz")
    assert train() == train(name="data/copy.npz", output="copy") == 0
    assert content("run") == content("copy")
    about = json.loads(Path("run/run.json").read_text())
    digest = hashlib.sha256(Path(own_file).read_bytes()).hexdigest()
    assert about["settings"]["dataset"] == own_file and digest == about["provenance"]["data_sha256"]
    assert about["provenance"]["image_shape"] == [3, 3]
    assert train(name="bars_and_stripes", output="bars") == 0
    assert "data_sha256" not in runs.load("bars").provenance


def other_images(name):
    np.savez(name, train=random_bits(40, 9, seed=3), test=random_bits(8, 9, seed=4))


def test_a_finished_run_is_kept(own_file, monkeypatch, capsys, refused):
    """The same command draws it again; other options, or other data, do not overwrite it."""
    assert train() == 0
    Path("run/curve.png").unlink()
    monkeypatch.setattr(runs, "execute", None)
    assert train() == 0 and Path("run/curve.png").exists()
    assert "run holds this run already" in capsys.readouterr().out
    refused(train("--seed", "1"), "run holds another run", "--output")
    other_images(own_file)
    refused(train(), "run holds another run")


KILLED = """
import os, signal, sys
from sdcpd import cli, training
from sdcpd.progress import Progress

def update(self, done):
    if done == 8:
        os.kill(os.getpid(), signal.SIGKILL)

Progress.update, training.PAUSE_SECONDS = update, -1
cli.main(sys.argv[1:])
"""


def test_killed_training_goes_on(own_file, capsys, refused):
    """Killed by a signal that nothing can catch. With other settings or data another folder is
    needed; the same command goes on, with the same bytes."""
    options = ["--epochs", "4", "--algorithm", "pcd"]
    assert train(*options, output="undisturbed") == 0
    capsys.readouterr()
    command = ["train", own_file, *SMALL, "--output", "run", *options]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not os.path.exists("run/run.json")
    others = "run/checkpoint-", "interrupted: choose another folder"
    refused(train(*options, "--learning-rate", "0.3"), *others)
    os.rename(own_file, "original.npz")
    other_images(own_file)
    refused(train(*options), *others)
    os.replace("original.npz", own_file)
    assert cli.main(command) == 0
    assert runs.load("run").wall["resumed_at_update"] in (6, 7)
    assert content("run") == content("undisturbed")
    assert not list(Path("run").glob("checkpoint-*"))


def test_interrupted_training(own_file, monkeypatch, refused):
    monkeypatch.setattr(runs, "execute", Mock(side_effect=KeyboardInterrupt))
    refused(train(), "interrupted: the same command goes on", expected=130)


def test_seeds_in_a_loop_of_the_shell(own_file):
    """All at once into one folder: one is trained, the others are refused in one line."""
    command = [sys.executable, "-m", "sdcpd", "train", own_file, *SMALL, "--output", "run"]
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*command, "--seed", str(seed)], **how) for seed in range(3)]
    errors = [process.communicate()[1] for process in processes]
    statuses = [process.returncode for process in processes]
    assert sorted(statuses) == [0, 2, 2]
    assert runs.load("run").settings["seed"] == statuses.index(0)
    for said, status in zip(errors, statuses, strict=True):
        if status:
            line = said.splitlines()[-1]
            assert "run" in line and ("another" in line or "holds" in line)
            assert "Traceback" not in said


def test_every_trial_diverged(own_file, capsys, refused):
    assert train("--algorithm", "cd", "--learning-rate", "1e30", "--trials", "2") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("sdcpd: every trial diverged") and "--learning-rate" in last
    assert (runs.load("run").curve.status == "diverged").sum() == 2
    assert os.path.exists("run/curve.png") and not os.path.exists("run/samples.png")
    for command in ("evaluate", "sample"):
        refused(cli.main([command, "run"]), "run has no model: all trials diverged")


def test_a_bug_is_not_hidden(own_file, monkeypatch):
    monkeypatch.setattr(runs, "execute", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train()


def test_images_that_are_no_squares():
    """Drawn and written in their own shape, from the run file alone."""
    np.save("own.npy", random_bits(20, 2, 5, seed=1))
    assert train(name="own.npy") == 0
    os.remove("own.npy")
    assert cli.main(["sample", "run", "--steps", "3", "--output", "new/images.npz"]) == 0
    with np.load("new/images.npz") as file:
        assert file["images"].shape == (25, 2, 5) and file["images"].dtype == np.uint8


# -------------------------------------------------------------------------- bad input


BAD_OPTIONS = {
    "train nothing.npy": "nothing.npy cannot be read: No such file or directory; check the path",
    "train own.csv": "unknown dataset 'own.csv': choose one of bars_and_stripes, mnist",
    "train x\udcff.npy": "rename the file",
    "train own.npz --algorithm adam": "unknown --algorithm 'adam': choose one of cd, pcd",
    "train own.npz --backend abacus": "unknown backend 'abacus': choose auto, numpy",
    "train own.npz --algorithm cd --epsilon 1": "--epsilon is an option of sdcp_d only",
    "train own.npz --sliding-factor 0.1": "--sliding-factor is an option of cg only",
    "train own.npz --algorithm pcd --inner-iterations 2": "option of sdcp and sdcp_d only",
    "train own.npz --output own.npz/run": "cannot write to own.npz/run: Not a directory; choose",
    "train own.npz --hide 3": "unrecognized arguments: --hide 3",
    "train": "the following arguments are required: DATA",
    "": "the following arguments are required: COMMAND",
    "evaluate nothing": "nothing is no run: give a folder",
    "evaluate empty": "empty: damaged run file",
    "sample run --output images.jpg": "--output must end in .png or .npz, not 'images.jpg'",
}


@pytest.mark.parametrize("command", BAD_OPTIONS)
def test_bad_option(command, own_file, tmp_path, refused):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/run.json").write_text("")
    refused(cli.main(command.split()), BAD_OPTIONS[command])
    assert not list(tmp_path.rglob("curve.csv"))


WRONG = {  # of each kind of number
    options.WHOLE: ("a whole number", ["x", "2.5"]),
    options.COUNT: ("a whole number above 0", ["0", "2.5"]),
    options.SEVERAL: ("a whole number above 1", ["1", "x"]),
    options.POSITIVE: ("a number above 0", ["0", "inf", "nan", "x"]),
    options.SHARE: ("a number from 0 to 1", ["-0.1", "1.1", "nan", "x"]),
}


@pytest.mark.parametrize("command", options.OPTIONS)
def test_numbers_that_make_no_sense(command, refused):
    for option, kind, *_ in options.OPTIONS[command]:
        what, values = WRONG.get(kind, ("", []))
        for value in values:
            status = cli.main([command, "data or run", option, value])
            refused(status, f"argument {option}: must be {what}, not {value!r}")


def test_read_only_output(own_file, monkeypatch, refused):
    """Found before the training, not after it."""

    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cli.tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(runs, "execute", None)
    refused(train(), "cannot write to run: Read-only file system; choose another")


def test_no_connection(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(cli, "DATA", tmp_path / "data")
    monkeypatch.delenv("SDCPD_DATA_MIRROR", raising=False)
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", Mock(side_effect=requests.ConnectionError))
    status = cli.main(["train", "mnist", "--algorithm", "cd", "--epsilon", "1"])
    refused(status, "--epsilon is an option of sdcp_d only")  # nothing is fetched for it
    refused(cli.main(["train", "mnist"]), "could not be had", "SDCPD_DATA_MIRROR=<folder>")


# --------------------------------------------------------- evaluate, sample and bench


def shown(capsys):
    """The first line that was printed, and the table: a DataFrame of numbers, but for words."""
    first, *lines = capsys.readouterr().out.splitlines()
    head = next(n for n, line in enumerate(lines) if line.split()[:1] == ["trial"])
    rows = [line.split() for line in lines[head + 1 :] if line.split()[0].isdigit()]
    names = re.split(r" (?!Z|error)", " ".join(lines[head].split()))
    table = pd.DataFrame(rows, columns=names)
    return first, table.map(lambda word: word if word.isalpha() else float(word))


def test_evaluate(own_file, capsys):
    """Exactly as at the end of the curve; by AIS near it, with random numbers of the seed."""
    assert train("--trials", "3", "--learning-rate", "0.2", "--epochs", "20") == 0
    run = runs.load("run")
    end = run.curve[run.curve["update"] == run.curve["update"].max()]
    capsys.readouterr()
    assert cli.main(["evaluate", "run", "--backend", "numpy"]) == 0
    about, table = shown(capsys)
    assert about.startswith("S-DCP-D on own.npz, 3 hidden units") and about.endswith("exact")
    assert list(table) == ["trial", "log Z", "standard error", "ESS", "train", "test"]
    assert table["trial"].tolist() == [0, 1, 2] and (table["ESS"] == "exact").all()
    for name, column in (("log_z", "log Z"), ("train", "train"), ("test", "test")):
        np.testing.assert_allclose(table[column], end[name], atol=1.1e-3)

    found = []
    for seed in ((), ("--seed", "7"), ("--seed", "8")):
        ais = ["--backend", "numpy", "--ais-temperatures", "50", *seed]
        assert cli.main(["evaluate", "run", *ais]) == 0
        found.append(shown(capsys))
    (about, table), (again, same), (_, other) = found
    assert about == again and "100 particles × 50 temperatures, seed 7" in about
    pd.testing.assert_frame_equal(table, same)
    assert (table["log Z"] != other["log Z"]).any()
    log_z = end.log_z.to_numpy()
    for table in (same, other):
        errors = table["standard error"]
        assert (errors > 0).all() and ((table["log Z"] - log_z).abs() < 5 * errors + 2e-3).all()
        assert (table["bound"] <= log_z + 2e-3).all()
        assert ((table["trusted"] - log_z).abs() < 0.25).all()


def test_evaluate_warns_of_a_mode_that_ais_misses(own_file, tmp_path, capsys):
    """Planted, of 10 nats more than all the rest; and not where there is none."""
    assert train("--ais-temperatures", "50") == 0
    run = runs.load("run")
    for gain, warned in ((10, True), (-30, False)):
        theta, images, _ = planted(784, 49, gain)
        np.savez(own_file, train=images[:450], test=images[450:])
        about = run.provenance | {"data_sha256": data.load(own_file).sha256}
        runfile.save(run._replace(theta=theta, provenance=about), tmp_path / "run")
        capsys.readouterr()
        assert cli.main(["evaluate", "run", "--ais-temperatures", "500"]) == 0
        printed = capsys.readouterr().out
        words = re.search(r"trial 0: AIS misses a mode .* by about ([\d.]+), certainly", printed)
        assert bool(words) == warned and ("trial 0:" in printed) == warned, printed
        if warned:
            assert abs(float(words[1]) - 10) < 0.5


def test_evaluate_warns_where_ais_finds_more(capsys):
    of_point = {"trial": 2, "log_z_se": 0.1, "trusted_log_z_se": 0.1, "bound": 9.0}
    of_point |= {"trusted_agrees": 1}
    cli._warn(log_z=12.0, trusted_log_z=10.0, **of_point)
    assert "trial 2: AIS finds 2.0 nats more of log Z" in capsys.readouterr().out
    cli._warn(log_z=10.4, trusted_log_z=10.0, **of_point)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("n", "doubtful"), [(20, False), (2, True)])
def test_evaluate_by_ais_as_the_run(n, doubtful, own_file, capsys):
    """And what is doubtful is marked."""
    assert train("--ais-particles", f"{n}", "--ais-temperatures", f"{n + 10}") == 0
    how, mark = f"{n} particles × {n + 10} temperatures", f"ESS below {MIN_ESS}: doubtful"
    printed = capsys.readouterr().out
    assert f"by AIS with {how}" in printed and (mark in printed) == doubtful
    assert runs.load("run").settings["ais"] == {"n_particles": n, "n_temperatures": n + 10}
    assert cli.main(["evaluate", "run"]) == 0
    printed = capsys.readouterr().out
    assert f"{how}, seed 7\n" in printed and "exact" not in printed
    assert mark in printed or not doubtful


def test_evaluate_on_which_data(own_file, capsys, refused):
    """A file that has changed is refused, one that has moved is not, nor are other images."""
    assert train() == 0
    shutil.copy(own_file, "moved.npz")
    evaluate = ["evaluate", "run", "--backend", "numpy"]
    tables = []
    for given in ([], ["--data", "moved.npz"], ["--data", "bars_and_stripes"]):
        capsys.readouterr()
        assert cli.main(evaluate + given) == 0
        tables.append(shown(capsys)[1])
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert (tables[0]["train"] != tables[2]["train"]).all()
    np.save("wide.npy", random_bits(20, 10, seed=1))
    status = cli.main([*evaluate, "--data", "wide.npy"])
    refused(status, "images of wide.npy have 10 pixels, but the models 9 visible units")
    other_images(own_file)
    for given in ([], ["--data", own_file]):
        refused(cli.main(evaluate + given), "own.npz has changed since run was trained on it")
    os.remove(own_file)
    refused(cli.main(evaluate), "own.npz cannot be read")


def test_evaluate_marks_what_diverged(own_file, capsys):
    assert train("--trials", "2") == 0
    run = runs.load("run")
    run.theta.W[0] = np.nan
    last = run.curve["update"] == run.curve["update"].max()
    run.curve.loc[last & (run.curve.trial == 0), "status"] = "diverged"
    runfile.save(run, Path("run"))
    capsys.readouterr()
    assert cli.main(["evaluate", "run"]) == 0
    _, table = shown(capsys)
    assert table["log Z"][0] == table["train"][0] == "diverged" and table["log Z"][1] > 0


def test_sample(own_file, capsys, refused):
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
    assert (found[0] != found[2]).any()
    assert "images.npz: 30 images after 7" in capsys.readouterr().out
    refused(cli.main([*command, "--output", "own.npz/images.npz"]), "cannot write to own.npz")
    assert train(name="images.npz", output="again") == 0


@pytest.mark.parametrize(("K", "d"), [(24, 6), (7, 1)])
def test_bench(K, d, capsys):
    size = ["--visible", "9", "--hidden", "4", "--batch-size", "5", "--seconds", "0.01"]
    assert cli.main(["bench", *size, "--gibbs-steps", str(K), "--backend", "numpy"]) == 0
    printed = capsys.readouterr().out
    assert "engine numpy, CPU" in printed
    assert f"9 × 4, mini-batches of 5, K = {K}, d = {d}, K′ = {K // d}\n" in printed
    found = dict(re.findall(r"^ *([A-Z].*\S) +([0-9.e+]+)$", printed, re.MULTILINE))
    assert 1 < float(found.pop("AIS, 100 particles × 1,000 temperatures")) < 1e5  # ms
    assert list(found) == [f"{label}, an update" for label in LABELS.values()]
    assert all(0 < float(value) < 1000 for value in found.values())


# ------------------------------------------------------------------------------- the place


def test_without_its_project(monkeypatch, refused, tmp_path):
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    refused(cli.main(["bench"]), "is installed without its project", "`uv run sdcpd`")
    with pytest.raises(SystemExit):
        cli.main(["--help"])


def test_in_the_folder_of_another_checkout(monkeypatch, refused, tmp_path):
    (tmp_path / "src/sdcpd").mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir("notebooks")
    refused(cli.main(["bench"]), f"that of {ROOT}:", f"in {tmp_path}")
    monkeypatch.chdir(ROOT / "notebooks")
    refused(cli.main(["sample", "nothing"]), "nothing is no run")


# ------------------------------------------------------------------------- as a program


def program(*arguments):
    """What a program of Python prints; nothing is wrong."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_program():
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert about["project"]["scripts"] == {"sdcpd": "sdcpd.cli:main"}
    assert program("-m", "sdcpd", "--version") == f"sdcpd {__version__}\n"


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
def test_whatever_becomes_of_the_terminal(shell, status, last, own_file):
    """The training is finished and its files are written."""
    letters = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "sdcpd", "train", own_file, *SMALL, "--output", "run"]
    line = f"set -o pipefail; {shlex.join(words)} {shell}"
    how = {"env": os.environ | letters, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(["bash", "-c", line], **how)
    assert done.returncode == status and "Error" not in done.stderr, done.stderr
    assert (done.stderr.splitlines() or [""])[-1].endswith(last)
    assert runs.load("run") and {"curve.png", "samples.png"} <= {*os.listdir("run")}


@pytest.mark.parametrize("command", options.OPTIONS)
def test_help_has_the_defaults_and_is_there_at_once(command):
    """Nothing that takes long to import, and no default that the configuration has."""
    code = f"import sys, sdcpd.cli as c\ntry: c.main(['{command}', '--help'])\n"
    code += "except SystemExit: pass\n"
    code += "print(*{'numpy', 'pandas', 'numba', 'matplotlib', 'scipy'} & {*sys.modules})"
    text = program("-c", code)
    assert text.startswith(f"usage: sdcpd {command}") and text.endswith("\n\n")
    assert "(auto)" in text
    if command == "train":
        assert ", ".join(ALGORITHMS).replace(", sdcp_d", " or sdcp_d (sdcp_d)") in text
        known = {str(value) for value in (*RATES.values(), *RATES_OF_BARS.values(), 500, 200, 2019)}
        assert not known & {*re.findall(r"[\d.]+", text.partition("examples:")[0])}
