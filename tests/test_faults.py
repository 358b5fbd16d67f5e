"""What goes wrong on the way: kills, full disks, damaged files. One clear line, nothing lost."""

import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from project import (
    CD,
    command,
    copy_project,
    environment,
    failures,
    have_data,
    run,
    with_algorithms,
)

from sdcpd import ROOT, data, runs
from sdcpd.runs import archive, runfile
from sdcpd.training import position_of

KILLS = int(os.environ.get("SDCPD_KILLS", "2"))  # 10 or more: of the whole smoke scale
# In them are times, which are never the same twice.
TIMES = ("timing/", "table1_timing", "claims", "site/", "wall.json", "notebooks/")


def start(project, *targets, log=subprocess.DEVNULL):
    """Snakemake in the copy, as a group of processes of its own."""
    return subprocess.Popen(
        command(*targets),
        cwd=project,
        env=environment(project),
        start_new_session=True,
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def wait_for(condition, seconds=120):
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def longer(project):
    """The copy, in which the smallest job takes seconds."""
    return with_algorithms(project, ["cd"], 8000)


def updates_in(folder):
    """How far the checkpoint is that lies there; -1 without one."""
    found = map(position_of, folder.glob("checkpoint-*.npz"))
    return max((at[1] for at in found if at), default=-1)


def processes_in(folder):
    """Processes that work in ``folder``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


# ------------------------------------------------------------------------------ killed


def test_killed_training_goes_on_with_the_same_result(tmp_path):
    fresh = longer(copy_project(tmp_path / "project"))
    first = start(fresh, f"{CD}/run.json")
    assert wait_for(lambda: updates_in(fresh / CD) > 0)  # the first is of the initial model
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert list((fresh / CD).glob("checkpoint-*.npz")) and not (fresh / CD / "run.json").exists()
    assert wait_for(lambda: not processes_in(fresh))

    status, printed = run(fresh, f"{CD}/run.json")
    assert status == 0, printed[-3000:]
    resumed = runs.load(fresh / CD)
    assert 0 < resumed.wall["resumed_at_update"] < 8000
    undisturbed = tmp_path / "undisturbed"
    runs.execute(resumed.settings, undisturbed, "auto")
    for part in ("curve.csv", "models.npz"):
        assert (fresh / CD / part).read_bytes() == (undisturbed / part).read_bytes(), part


def test_finished_training_outlives_what_fails_after_it(tmp_path):
    """A drawing; snakemake then deletes the run file of the job. Nothing is trained again."""
    project = copy_project(tmp_path / "project")
    path = project / "notebooks/train.ipynb"
    original = path.read_text()
    path.write_text(
        original.replace("figures.trial_curves(run).suptitle(name, y=1.02)", "raise OSError('pen')")
    )
    status, printed = run(project, f"{CD}/run.json")
    assert status != 0 and "OSError: pen" in printed, printed[-3000:]
    path.write_text(original)
    status, printed = run(project, f"{CD}/run.json")
    assert status == 0, printed[-3000:]
    trained = runs.load(project / CD)
    assert trained.wall["resumed_at_update"] == trained.curve["update"].max()
    assert not list((project / CD).glob("checkpoint-*"))


def test_copied_project_does_not_use_the_original(tmp_path):
    """Its virtual environment, copied too, has the original's package."""
    project = copy_project(tmp_path / "project")
    status, printed = run(project, f"{CD}/run.json", PYTHONPATH=str(ROOT / "src"))
    assert status != 0 and "Traceback" not in printed
    line = f"the package in use is that of {ROOT}, not of this folder"
    assert printed.count(line) == 1 and "delete its .venv" in printed, printed[-3000:]
    assert not (project / "results").exists()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs another file system")
def test_logs_on_another_file_system_and_other_kernels(tmp_path):
    """Of the name python3: an environment module's, or conda's. The job's is this Python."""
    project, spec = copy_project(tmp_path / "project"), tmp_path / "jupyter/kernels/python3"
    spec.mkdir(parents=True)
    spec.joinpath("kernel.json").write_text('{"argv": ["false"], "display_name": "other"}')
    elsewhere, others = Path(tempfile.mkdtemp(dir="/dev/shm")), str(tmp_path / "jupyter")
    try:
        (project / "logs").symlink_to(elsewhere)
        where = {"JUPYTER_PATH": others, "JUPYTER_DATA_DIR": others}
        status, printed = run(project, f"{CD}/run.json", **where)
        assert status == 0, printed[-3000:]
        assert not list(elsewhere.rglob("*.ipynb")) and list(elsewhere.rglob("*.log"))
    finally:
        shutil.rmtree(elsewhere)


def kernels(project):
    with contextlib.suppress(psutil.Error):
        return [p for p in processes_in(project) if "ipykernel_launcher" in " ".join(p.cmdline())]


def kill_group(process, project):
    """As when a terminal or a job of a cluster is ended. Kernels are in groups of their own."""
    os.killpg(process.pid, signal.SIGKILL)


def kill_snakemake(process, project):
    """It alone: its jobs must notice, and end."""
    process.kill()


def kill_kernel(process, project):
    """One alone; then Ctrl-C, as the rest would be made all the same."""
    found = wait_for(lambda: kernels(project), 30)
    if found:
        found[0].kill()
        time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(120)


def contents(project):
    """Every file of results and figures, with its bytes where no times are in it."""
    files = [f for folder in ("results", "figures") for f in (project / folder).rglob("*.*")]
    names = {str(file.relative_to(project)): file for file in files if file.is_file()}
    found = {n: b"" if any(t in n for t in TIMES) else f.read_bytes() for n, f in names.items()}
    return {name: re.sub(rb'"finished": .*', b"", content) for name, content in found.items()}


def test_killed_at_random_it_ends_with_the_same_bytes(tmp_path):
    """KILLS times, and each time at once the same command again."""
    everything = KILLS >= 10 and have_data()
    targets = () if everything else (f"{CD}/run.json", f"{CD.replace('cd-', 'sdcp_d-')}/run.json")
    undisturbed = copy_project(tmp_path / "undisturbed")
    before = time.monotonic()
    status, printed = run(undisturbed, *targets)
    assert status == 0, printed[-3000:]
    taken = time.monotonic() - before

    seed = time.time_ns()
    moments, project = random.Random(seed), copy_project(tmp_path / "project")
    log, killed = (tmp_path / "log.txt").open("w+"), set()
    for number in range(KILLS):
        process = start(project, *targets, log=log)
        time.sleep(5 + moments.random() * 1.5 * taken / KILLS)
        assert wait_for(lambda gone=killed: not any(p.is_running() for p in gone), 10), seed
        killed = set(processes_in(project))
        (kill_group, kill_kernel, kill_snakemake)[number % 3](process, project)
        process.wait()
        print(f"kill {number}: {len(list(project.glob('results/**/run.json')))} runs finished")
    status, printed = run(project, *targets)
    assert status == 0, f"{seed}: {printed[-3000:]}"
    log.seek(0)
    assert "cannot be locked" not in log.read() + printed
    assert not processes_in(project)
    ours, theirs = contents(project), contents(undisturbed)
    assert set(ours) == set(theirs), seed
    assert [name for name in ours if ours[name] != theirs[name]] == [], seed


def test_killed_kernel_is_named_in_one_line(tmp_path):
    project = copy_project(tmp_path / "project")
    with (tmp_path / "log.txt").open("w+") as log:
        process = start(project, f"{CD}/run.json", log=log)
        assert wait_for(lambda: kernels(project))
        kernels(project)[0].kill()
        assert process.wait(60) != 0
        log.seek(0)
        (failed,) = failures(log.read())
    assert "its kernel was killed" in failed and "run the same command again" in failed


def test_two_at_once(tmp_path):
    """The second says who is at work, and disturbs nothing."""
    project = longer(copy_project(tmp_path / "project"))
    process = start(project, f"{CD}/run.json")
    assert wait_for(lambda: list(project.glob(".snakemake/locks/*")))
    status, printed = run(project, f"{CD}/run.json")
    notes = [line for line in printed.splitlines() if line.startswith("note: another snakemake")]
    assert status != 0 and len(notes) == 1 and f"(process {process.pid})" in notes[0], printed
    assert process.wait(120) == 0 and runs.load(project / CD)


# ----------------------------------------------------------------------- disk and folders


@pytest.fixture
def disk(tmp_path):
    """A function bytes -> folder on a disk of that size; and one folder -> None: read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        done = subprocess.run(["mount", *options, folder], capture_output=True)
        if done.returncode:
            pytest.skip("a disk of its own needs the right to mount one")

    def make(size):
        mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
        return folder

    make.read_only = lambda: mount("-o", "remount,ro")
    yield make
    subprocess.run(["umount", "--lazy", folder], capture_output=True)


def fill(folder, left):
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with (folder / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - left)


def test_full_disk_is_noticed_before_anything_is_done(tmp_path, disk):
    project = copy_project(disk(200 * 10**6) / "project")
    fill(project, 10 * 10**6)
    status, printed = run(project, f"{CD}/run.json")
    lines = [line for line in printed.splitlines() if "the disk is full" in line]
    assert status != 0 and len(lines) == 1, printed[-3000:]
    assert "Traceback" not in printed and not (project / "results").exists()


def test_disk_that_becomes_full(tmp_path, disk):
    """The job says so; with room again the same command makes the rest."""
    project = copy_project(disk(200 * 10**6) / "project")
    with (tmp_path / "log.txt").open("w+") as log:
        process = start(project, f"{CD}/run.json", log=log)
        assert wait_for(lambda: kernels(project))
        fill(project, 0)
        assert process.wait(120) != 0
        log.seek(0)
        printed = log.read()
    name = "train-bars_and_stripes-as_published-4h"
    lines = [line for line in printed.splitlines() if line.startswith(f"{name}: ")]
    assert len(lines) == 1 and "No space left on device" in lines[0], printed[-3000:]
    (project / "filling").unlink()
    status, printed = run(project, f"{CD}/run.json")
    assert status == 0, printed[-3000:]
    assert runs.load(project / CD).curve.train.notna().all()


def test_folder_that_cannot_be_written_to(tmp_path, disk):
    project = tmp_path / "project"
    if os.geteuid() == 0:  # whom no permission stops
        project = copy_project(disk(200 * 10**6) / "project")
        disk.read_only()
    else:
        copy_project(project)
        (project / "results").mkdir(mode=0o500)
    status, printed = run(project, f"{CD}/run.json")
    lines = [line for line in printed.splitlines() if "cannot be written to" in line]
    assert status != 0 and len(lines) == 1 and "Traceback" not in printed, printed[-3000:]


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write to")
def test_home_folder_that_cannot_be_written_to(tmp_path):
    project = copy_project(tmp_path / "project")
    status, printed = run(project, f"{CD}/run.json", HOME="/proc/nobody", XDG_CACHE_HOME="")
    assert status == 0, printed[-3000:]
    assert "/proc/nobody" not in printed + (project / f"{CD}/run.json").read_text()
    for notebook in project.glob("results/smoke/notebooks/*.ipynb"):
        assert "/proc/nobody" not in notebook.read_text()


def test_whatever_the_folder_is_called(tmp_path):
    """Its own Python, as uv makes it, lies there too."""
    project = copy_project(tmp_path / """it's 100% (größe) $x "q" ;&""")
    (project / ".venv").symlink_to(sys.prefix)
    program = [project / ".venv/bin/python", *command(f"{CD}/run.json")[1:]]
    done = subprocess.run(program, cwd=project, env=environment(project), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert runs.load(project / CD)


@pytest.mark.parametrize("name", ["{0}", "a:b"])
def test_folder_whose_name_cannot_be(name, tmp_path):
    project = copy_project(tmp_path / name)
    status, printed = run(project, "--dry-run")
    lines = [line for line in printed.splitlines() if "rename the folder" in line]
    assert status != 0 and len(lines) == 1 and "Traceback" not in printed, printed[-3000:]


@pytest.mark.parametrize("shell", ["2>&1 | head -n 1", ">&- 2>&-"])
def test_whatever_becomes_of_the_terminal(shell, tmp_path):
    project = copy_project(tmp_path / "project")
    line = f"set -o pipefail; {shlex.join(command(f'{CD}/run.json'))} {shell}"
    few = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # letters
    done = subprocess.run(["bash", "-c", line], cwd=project, env=environment(project, **few))
    assert done.returncode == 0
    assert runs.load(project / CD)


def test_user_id_without_a_name(tmp_path):
    """As a container may give."""
    unshare = ["unshare", "--user", "--map-user=12345"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("needs the right to take another user id")
    project = copy_project(tmp_path / "project")
    nameless = environment(project)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        nameless.pop(name, None)
    program = [*unshare, *command(f"{CD}/run.json")]
    done = subprocess.run(program, cwd=project, env=nameless, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]


# ------------------------------------------------------------------------ data and files


def cut_off(project):
    """No address answers any more."""
    path = project / "workflow/config/datasets.yaml"
    path.write_text(re.sub(r"https://\S+", "https://127.0.0.1:9/nothing", path.read_text()))


def test_tampered_archive_is_refused_in_one_line(tmp_path):
    fresh = copy_project(tmp_path / "project")
    curve = fresh / "workflow/archive/runs/mnist/as_published/cg-500h/curve.csv"
    curve.write_text(curve.read_text().replace("-1", "-2", 1))
    status, printed = run(fresh, "figures/fig2_mnist.pdf", config=["scale=quick"])
    failed = failures(printed)
    assert status != 0 and len(failed) == 1
    assert "cg-500h/curve.csv is not the file that was archived" in failed[0]


def test_replay_without_data_says_so_and_does_not_fail(tmp_path):
    fresh = copy_project(tmp_path / "project")
    cut_off(fresh)
    target = "figures/replay_mnist.md"
    status, printed = run(fresh, target, config=["scale=quick"], SDCPD_DATA_MIRROR="")
    assert status == 0, printed[-3000:]
    assert "not compared" in (fresh / target).read_text()


def test_missing_data_does_not_stop_the_rest(tmp_path):
    """No internet, and in the mirror a truncated file, which must not pass for the whole."""
    fresh = copy_project(tmp_path / "project")
    cut_off(fresh)
    (mnist,) = data.files_of("mnist")
    (tmp_path / "mirror" / mnist).parent.mkdir(parents=True)
    (tmp_path / "mirror" / mnist).write_bytes(b"the beginning")
    targets = (f"{CD}/run.json", "figures/fig2_mnist.pdf")
    status, printed = run(fresh, *targets, SDCPD_DATA_MIRROR=str(tmp_path / "mirror"))
    assert status != 0
    assert (fresh / CD / "run.json").exists() and not (fresh / "data" / mnist).exists()
    (failed,) = failures(printed)
    assert "is damaged (wrong checksum)" in failed and "no connection" in failed
    assert "SDCPD_DATA_MIRROR" in failed
    assert re.search(r"not made: .*fig2_mnist", printed)


def test_archived_run_of_an_older_version(tmp_path, monkeypatch):
    fresh = copy_project(tmp_path / "project")
    path = fresh / "workflow/archive/runs/mnist/as_published/cg-500h/run.json"
    path.write_text(path.read_text().replace(f'"format": {runfile.FORMAT}', '"format": 1'))
    monkeypatch.setattr(archive, "FOLDER", fresh / "workflow/archive")
    archive.write_sums()
    status, printed = run(fresh, "figures/fig2_mnist.pdf", config=["scale=quick"])
    (failed,) = failures(printed)
    assert status != 0 and f"run file format 1, expected {runfile.FORMAT}" in failed
