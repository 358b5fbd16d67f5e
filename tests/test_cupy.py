"""All that runs on a GPU, with the stand-in for CuPy of tests/strict, compared with NumPy.

What CuPy refuses is refused here too, and ``xp is not np``: the branches for a GPU run.
"""

import os
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import test_contributing
from conftest import random_bits
from project import CD, copy_project, environment, run, with_algorithms
from test_quality import different
from test_runs import AIS, settings

from sdcpd import ROOT, cli, data, engines, figures, runs
from sdcpd.algorithms import ALGORITHMS
from sdcpd.device import BackendError
from sdcpd.engines import choose_apart
from sdcpd.engines.gpu import SplitEngine
from sdcpd.study import modes, quality

ENGINES = ["cupy", "cupy_float32"]


@pytest.fixture(autouse=True)
def strict(strict_cupy):
    return strict_cupy


# ------------------------------------------------------------------------ the stand-in


def test_it_refuses_what_cupy_refuses(strict):
    ours, theirs = strict.asarray(np.ones((2, 3), np.float32)), np.ones((2, 3), np.float32)
    for wrong in (
        lambda: np.asarray(ours),
        lambda: np.exp(ours),
        lambda: ours + theirs,
        lambda: theirs * ours,
        lambda: ours.__setitem__(0, theirs[0]),
        lambda: ours[np.array([0, 1])],
        lambda: strict.concatenate([ours, theirs]),
        lambda: strict.asarray([ours]),
        lambda: strict.ascontiguousarray(theirs),
        lambda: strict.asarray(["text"]),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert (np.float32(2) * ours + 1).dtype == np.float32
    assert np.isnan(strict.empty(3, strict.float32).get()).all()  # new memory is not zero
    assert ours[strict.asarray([1, 0])].shape == (2, 3) and type(ours.sum()) is strict.ndarray


KERNEL = """extern "C" __global__ void fill(float* x, int n, float y, half* h) {
  if (threadIdx.x < n) x[threadIdx.x] = y;
}
"""


def test_kernels_are_given_what_they_declare(strict):
    """A GPU would read memory that is not meant."""
    fill = strict.RawModule(code="typedef unsigned short half;\n" + KERNEL).get_function("fill")
    x, null = strict.zeros((4, 2), strict.float32), np.uint64(0)
    fill((1,), (8,), (x, np.int32(3), np.float32(7), null))
    assert x.get().ravel().tolist() == [7] * 3 + [0] * 5
    halves = strict.zeros(40, strict.float16)
    for wrong in (
        (x.T, np.int32(3), np.float32(7), null),
        (x.astype(strict.float64), np.int32(3), np.float32(7), null),
        (x.get(), np.int32(3), np.float32(7), null),
        (x, 3, np.float32(7), null),
        (x, np.int64(3), np.float32(7), null),
        (x, np.int32(3), np.float64(7), null),
        (x, np.int32(3), np.float32(7), None),
        (x, np.int32(3), np.float32(7), halves[1:]),
    ):
        with pytest.raises(AssertionError):
            fill((1,), (8,), wrong)
    fill((1,), (8,), (x, np.int32(3), np.float32(7), halves[8:]))
    with pytest.raises(UnicodeEncodeError):
        strict.RawModule(code=KERNEL + "// ε")


# --------------------------------------------------------------------------- the choice


def test_a_gpu_is_tried_in_a_process_of_its_own(strict_environment, monkeypatch):
    """The one that asks holds no memory of it: with CuPy it would until it ends."""
    for name in ("PYTHONPATH", "EMULATED_KERNELS"):
        monkeypatch.setenv(name, strict_environment[name])
    monkeypatch.setattr(engines, "choose", lambda name: pytest.fail("tried here"))
    assert choose_apart("auto") == ("cupy", None)
    assert choose_apart("cupy_float32") == ("cupy_float32", None)
    with pytest.raises(BackendError, match="^unknown backend 'cuda'"):
        choose_apart("cuda")
    monkeypatch.setattr(engines, "_CHOOSE", "import os; os.abort()")
    with pytest.raises(BackendError, match="trying the GPU failed"):
        choose_apart("auto")


def test_without_cupy_no_process_is_started(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    monkeypatch.setattr(engines.subprocess, "run", lambda *a, **k: pytest.fail("started"))
    monkeypatch.setattr(engines, "choose", lambda name: ("numba", "no CuPy"))
    assert choose_apart("auto") == ("numba", "no CuPy")


# ------------------------------------------------------------------------ runs, as with NumPy


def assert_alike(ours, plain):
    """But for roundings: the same draws, which decide the states."""
    for one, other in zip(ours.theta or (), plain.theta or (), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    pd.testing.assert_frame_equal(ours.curve, plain.curve, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("algorithm", ["cd", "sdcp_d"])
@pytest.mark.parametrize("changes", [{}, {"batch_size": 16, "ais": AIS}], ids=["exact", "full-ais"])
def test_run_as_with_numpy(name, algorithm, changes, tmp_path):
    ours = runs.execute(settings(algorithm, **changes), tmp_path, name)
    assert_alike(ours, runs.execute(settings(algorithm, **changes), None, "numpy"))
    assert ours.provenance["engine"] == name and ours.provenance["device"].startswith("GPU none")
    assert runs.load(tmp_path).theta.W.shape == (2, 3, 9)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_replicas_some_of_which_diverge(name, algorithm, tmp_path):
    """Those that go on are selected from arrays of the GPU by numbers on it."""
    values = settings(algorithm)["hyperparameters"]
    grid = [values, values | {"learning_rate": 1e30}, values | {"learning_rate": 0.2}]
    sweep = settings(algorithm) | {"hyperparameters": grid}
    ours = runs.execute_sweep(sweep, None, name, checkpoints_in=tmp_path / "ours")
    plain = runs.execute_sweep(sweep, None, "numpy", checkpoints_in=tmp_path / "plain")
    lost = ours.pop(1), plain.pop(1)
    for one, other in zip(ours, plain, strict=True):
        assert_alike(one, other)
    assert [set(each.curve.status) for each in lost] == [{"ok", "diverged"}] * 2


@pytest.mark.parametrize("name", ENGINES)
def test_images_binarized_anew_and_validated(name, monkeypatch):
    """Grey levels are drawn on the GPU; the validation images lie there, too."""
    grey = np.random.default_rng(1).integers(0, 256, (16, 9), np.uint8)
    bits = [random_bits(n, 9, seed=n, dtype=np.uint8) for n in (16, 5, 7)]
    dataset = data.Dataset(*bits, (3, 3), grey=grey)
    monkeypatch.setattr(data, "load", lambda name, folder: dataset)
    ours = runs.execute(settings("pcd"), None, name)
    assert_alike(ours, runs.execute(settings("pcd"), None, "numpy"))
    assert "valid" in ours.curve


@pytest.mark.parametrize("name", ENGINES)
def test_final_models_measured_as_with_numpy(name, tmp_path, monkeypatch):
    """log Z and modes; generated images, all models side by side."""
    longer = {"epochs": 30, "evaluate": {"every": 30, "also": [0]}, "ais": AIS}
    finished = [runs.execute(settings(a, **longer), None, "numpy") for a in ("cd", "sdcp_d")]
    ours, plain = (
        modes.measure(finished, tmp_path / each, 7, 2, 10, 20, each) for each in (name, "numpy")
    )
    pd.testing.assert_frame_equal(ours, plain, rtol=1e-4)
    labelled = [random_bits(n, 6, seed=n, dtype=np.uint8) for n in (30, 20)]
    dataset = data.Dataset(labelled[0], None, labelled[1], (2, 3))
    classes = data.Labelled(labelled[0], np.arange(30) % 3, labelled[1], np.arange(20) % 3)
    monkeypatch.setattr(data, "load", lambda *arguments: dataset)
    monkeypatch.setattr(data, "load_labelled", lambda *arguments: classes)
    ours, plain = (
        quality.measure(different(), tmp_path / f"images-{each}", 1, 16, 3, 9, each)
        for each in (name, "numpy")
    )
    pd.testing.assert_frame_equal(ours, plain, rtol=1e-5)


# -------------------------------------------------------------------------------- memory


def test_too_many_replicas_are_split_into_groups(tmp_path, monkeypatch):
    """With the results of all at once, to the bit, and a checkpoint each."""
    given = settings("pcd", trials=5)
    together = runs.execute(given, tmp_path / "together", "cupy")
    assert engines.select("cupy").capacity(3, 9, 6, 16) > 5
    monkeypatch.setattr(SplitEngine, "capacity", lambda *_: 2)
    apart = runs.execute(given, tmp_path / "apart", "cupy")
    for one, two in zip(together.theta, apart.theta, strict=True):
        np.testing.assert_array_equal(one, two)
    pd.testing.assert_frame_equal(together.curve, apart.curve, rtol=1e-12)
    assert len(list(tmp_path.glob("together/checkpoint-*"))) == 1
    assert len(list(tmp_path.glob("apart/checkpoint-*"))) == 3


@pytest.mark.parametrize("name", ENGINES)
def test_a_single_model_that_does_not_fit(strict, name, monkeypatch):
    """One line before anything is allocated."""
    monkeypatch.setattr(strict, "TOTAL", strict.memory.live + 10**5)
    with pytest.raises(runs.RunError, match="not enough memory") as error:
        runs.execute(settings("pcd"), None, name)
    assert "\n" not in str(error.value)


# -------------------------------------------------------------------- commands and examples


@pytest.mark.parametrize("name", ENGINES)
def test_commands(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "trial_curves", lambda run: figures.plt.figure(figsize=(1, 1)))
    np.savez("own.npz", **{n: random_bits(s, 9, seed=s) for n, s in (("train", 40), ("test", 8))})
    small = ["--hidden=3", "--epochs=2", "--trials=3", "--sample-steps=10", "--learning-rate=0.2"]
    printed = {}
    for each in (name, "numpy"):
        backend = ["--backend", each]
        assert cli.main(["train", "own.npz", *small, "--output", each, *backend]) == 0
        for ais in ([], ["--ais-particles=10", "--ais-temperatures=30"]):
            assert cli.main(["evaluate", each, *ais, *backend]) == 0
        sample = ["sample", each, "--steps", "5", "--output", f"{each}.npz", *backend]
        assert cli.main(sample) == 0
        printed[each] = capsys.readouterr().out
    assert_alike(runs.load(name), runs.load("numpy"))
    numbers = [
        [line for line in printed[each].splitlines() if line.strip()[:1].isdigit()]
        for each in (name, "numpy")
    ]
    assert len(numbers[0]) == 9  # evaluations; three models twice
    for ours, plain in zip(*numbers, strict=True):
        both = ours.replace("exact", "0").split(), plain.replace("exact", "0").split()
        np.testing.assert_allclose(*(np.array(each, float) for each in both), atol=2e-3)
    with np.load(f"{name}.npz") as ours, np.load("numpy.npz") as plain:
        np.testing.assert_array_equal(ours["images"], plain["images"])
    size = ["--visible", "9", "--hidden", "4", "--batch-size", "5", "--seconds", "0.001"]
    assert cli.main(["bench", *size, "--gibbs-steps", "4", "--backend", name]) == 0
    assert f"engine {name}, GPU none" in capsys.readouterr().out


def gpu_environment(project, strict_environment):
    """Of a process in a copy of the project."""
    path = f"{project / 'tests/strict'}:{project / 'src'}"
    return environment(project) | strict_environment | {"PYTHONPATH": path}


def test_an_algorithm_that_was_added(strict_environment, tmp_path, monkeypatch):
    """CONTRIBUTING's, which knows nothing of the engine's own form of models."""
    project = copy_project(tmp_path / "project")
    fewer = "--learning-rate 0.1 --epochs 300 --trials 2\n"
    text = test_contributing.TEXT.replace("--learning-rate 0.1\n", fewer)
    here = gpu_environment(project, strict_environment)
    monkeypatch.setattr(test_contributing, "TEXT", text)
    monkeypatch.setattr(test_contributing, "environment", lambda project: here)
    test_contributing.carry_out(project, "An algorithm")
    result = runs.load(project / "results/by_hand/bars_and_stripes-momentum-4h")
    assert result.provenance["engine"] == "cupy" and len(result.trials) == 2
    first, *_, last = result.curve.train
    assert last > first + 0.3


def test_workflow_on_a_gpu(strict_environment, tmp_path):
    """It takes the GPU by itself; jobs share it, but for what is timed."""
    project = copy_project(tmp_path / "project")
    for each in (project / "tests/strict").iterdir():  # a job's kernel sees nothing but src
        (project / "src" / each.name).symlink_to(each)
    changes = gpu_environment(project, strict_environment) | {"CUDA_VISIBLE_DEVICES": "3,5"}
    status, printed = run(project, CD + "/run.json", **changes)
    assert status == 0, printed[-3000:]
    assert "scale smoke, on the GPU, engine cupy\n" in printed
    assert runs.load(project / CD).provenance["engine"] == "cupy"
    assert [path.name for path in (project / ".snakemake/devices").iterdir()] == ["3.0"]
    with (project / "Snakefile").open("a") as file:
        file.write('\nprint("timed:", rules.timing.rule.resources["gpu"].value, "of", GPU_JOBS)\n')
    for limit, said in (((), "4 of 4"), (("--resources", "gpu=2"), "2 of 2")):
        status, printed = run(project, "-n", "figures/table1_timing.md", *limit, **changes)
        assert status == 0 and f"timed: {said}\n" in printed, printed[-3000:]
    if find_spec("snakemake_executor_plugin_slurm"):
        slurm = "--profile", "workflow/profiles/slurm"
        status, printed = run(project, "-n", "figures/table1_timing.md", *slurm, **changes)
        assert status == 0 and "timed: 1 of 1\n" in printed, printed[-3000:]


# ----------------------------------------------------------------- a machine without the rest

NOT_NEEDED = "psutil snakemake papermill ipykernel nbconvert nbclient pooch requests jsonschema"
NOT_NEEDED += " threadpoolctl tabulate matplotlib numba jinja2 xdist"


@pytest.fixture
def bare(strict_environment, tmp_path):
    """Environment of a machine with CuPy, NumPy, SciPy, pandas, PyYAML and tqdm alone."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({NOT_NEEDED.split()}))\n"
    (tmp_path / "sitecustomize.py").write_text(block)  # Python begins with it
    changes = gpu_environment(ROOT, strict_environment)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    changes |= {"PATH": path, "PYTHONPATH": f"{tmp_path}:{changes['PYTHONPATH']}"}
    return changes | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def test_study_on_a_bare_gpu_machine(bare, tmp_path):
    folder = tmp_path / "results"
    project = with_algorithms(copy_project(tmp_path / "project"), ["cd", "sdcp_d"])

    def study(piece):
        program = [sys.executable, "benchmarks/study.py", piece, "--scale", "smoke"]
        program += ["--experiments", "bars_and_stripes", "--folder", folder, "--backend", "cupy"]
        program += ["--nice", "0"]
        done = subprocess.run(program, cwd=project, env=bare, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    study("run")
    assert "as_published cd" in study("status")
    assert runs.load(folder / "runs/bars_and_stripes/as_published/cd-4h").theta.W.shape[0] == 2
    study("hidden_modes"), study("quality")  # which have nothing to do here but imports


def test_gpu_script_on_a_bare_gpu_machine(bare, tmp_path):
    """One archive comes back, whatever failed."""
    archive = tmp_path / "place/gpu.tar.gz"

    def script(*parts, **changes):
        command = ["bash", "benchmarks/gpu.sh", archive, *parts]
        environment = bare | {"QUICK": "1", "TMPDIR": str(tmp_path)} | changes
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    done = script("bars")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "failed: nothing;" in done.stdout
    with tarfile.open(archive) as file:
        kinds = sorted(Path(name).suffix for name in file.getnames() if name != ".")
        assert kinds == [".json", ".log", ".md"]
    no_gpu = bare["PYTHONPATH"].split(":")[0]
    done = script("tests", "bars", BACKEND="cuda", PYTHONPATH=no_gpu)
    assert done.returncode == 1 and "failed: bars;" in done.stdout, done.stdout[-3000:]
    with tarfile.open(archive) as file:
        (log,) = (name for name in file.getnames() if name.endswith(".log"))
        said = file.extractfile(log).read().decode()
        assert "unknown backend 'cuda'" in said and " passed" in said
    assert {path.name for path in archive.parent.iterdir()} == {"gpu.tar.gz"}
    assert not list(tmp_path.glob("tmp.*"))
