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
    check_refused,
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

RUN = f"{CD}/run.json"
KILLS = int(os.environ.get("SDCPD_KILLS", "2"))  # 10 or more: of the whole smoke scale
# In them are times, which are never the same twice.
TIMES = ("timing/", "table1_timing", "claims", "site/", "wall.json", "notebooks/")


def made(project, **changes):
    """The smallest run, which a call of snakemake makes."""
    status, printed = run(project, RUN, **changes)
    assert status == 0, printed[-3000:]
    return runs.load(project / CD)


def start(project, *targets, log=subprocess.DEVNULL):
    """Snakemake in the copy, as a group of processes of its own."""
    where = {"cwd": project, "env": environment(project), "start_new_session": True}
    return subprocess.Popen(command(*targets), stdout=log, stderr=subprocess.STDOUT, **where)


def wait_for(condition, seconds=120):
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


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


def kernels(project):
    with contextlib.suppress(psutil.Error):
        return [p for p in processes_in(project) if "ipykernel_launcher" in " ".join(p.cmdline())]


# ------------------------------------------------------------------------------ killed


def test_killed_training_goes_on_with_the_same_result(tmp_path):
    project = with_algorithms(copy_project(tmp_path / "project"), ["cd"], 8000)  # for seconds
    log = tmp_path / "log.txt"

    # Its kernel alone: one line says so.
    with log.open("w") as file:
        first = start(project, RUN, log=file)
        assert wait_for(lambda: kernels(project))
        kernels(project)[0].kill()
        assert first.wait(60) != 0
    (failed,) = failures(log.read_text())
    assert "its kernel was killed" in failed and "run the same command again" in failed

    # The same command while it runs: it says who is at work, and disturbs nothing.
    second = start(project, RUN)
    assert wait_for(lambda: list(project.glob(".snakemake/locks/*")))
    words = f"note: another snakemake is at work in this folder (process {second.pid})"
    check_refused(words, project, RUN)
    assert wait_for(lambda: updates_in(project / CD) > 0)  # the first is of the initial model

    # All of it.
    os.killpg(second.pid, signal.SIGKILL)
    second.wait()
    assert updates_in(project / CD) > 0 and not (project / RUN).exists()
    assert wait_for(lambda: not processes_in(project))
    resumed = made(project)
    assert 0 < resumed.wall["resumed_at_update"] < 8000
    undisturbed = tmp_path / "undisturbed"
    runs.execute(resumed.settings, undisturbed, "auto")
    for part in ("curve.csv", "models.npz"):
        assert (project / CD / part).read_bytes() == (undisturbed / part).read_bytes(), part


def test_finished_training_outlives_what_fails_after_it(tmp_path):
    """A drawing; snakemake then deletes the run file of the job. Nothing is trained again."""
    project = copy_project(tmp_path / "project")
    path = project / "notebooks/train.ipynb"
    original = path.read_text()
    path.write_text(
        original.replace("figures.trial_curves(run).suptitle(name, y=1.02)", "raise OSError('pen')")
    )
    status, printed = run(project, RUN)
    assert status != 0 and "OSError: pen" in printed, printed[-3000:]
    path.write_text(original)
    trained = made(project)
    assert trained.wall["resumed_at_update"] == trained.curve["update"].max()
    assert not list((project / CD).glob("checkpoint-*"))


def kill_group(process, project):
    """As when a terminal or a job of a cluster is ended. Kernels are in groups of their own."""
    os.killpg(process.pid, signal.SIGKILL)


def kill_snakemake(process, project):
    """It alone: its jobs must notice, and end."""
    process.kill()


def kill_kernel(process, project):
    """One alone; then Ctrl-C, as the rest would be made all the same."""
    wait_for(lambda: kernels(project) or process.poll() is not None, 30)
    if found := kernels(project):
        found[0].kill()
        time.sleep(2)
    with contextlib.suppress(ProcessLookupError):  # it had ended
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
    targets = () if everything else (RUN, RUN.replace("cd-", "sdcp_d-"))
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


# ---------------------------------------------------------------------------- full disks


@pytest.fixture
def disk(tmp_path):
    """A disk of 200 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200M", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk of its own needs the right to mount one")
    yield folder
    subprocess.run(["umount", "--lazy", folder], capture_output=True)


def fill(folder, left):
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with (folder / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - left)


def test_full_disk(tmp_path, disk):
    """It is noticed before anything is done; a job whose disk becomes full says so."""
    project = copy_project(disk / "project")
    fill(project, 10 * 10**6)
    check_refused("the disk is full", project, RUN)
    assert not (project / "results").exists()
    (project / "filling").unlink()

    log = tmp_path / "log.txt"
    with log.open("w") as file:
        process = start(project, RUN, log=file)
        assert wait_for(lambda: kernels(project))
        fill(project, 0)
        assert process.wait(120) != 0
    name = "train-bars_and_stripes-as_published-4h: "
    lines = [line for line in log.read_text().splitlines() if line.startswith(name)]
    assert len(lines) == 1 and "No space left on device" in lines[0], lines
    (project / "filling").unlink()
    assert made(project).curve.train.notna().all()


# ------------------------------------------------------------------ where and how it runs


def test_copied_project_does_not_use_the_original(tmp_path):
    """Its virtual environment, copied too, has the original's package."""
    project = copy_project(tmp_path / "project")
    words = f"the package in use is that of {ROOT}, not of this folder"
    check_refused(words, project, RUN, PYTHONPATH=str(ROOT / "src"))
    assert not (project / "results").exists()


def test_folder_that_cannot_be_written_to(tmp_path, request):
    if os.geteuid() == 0:  # whom no permission stops
        folder = request.getfixturevalue("disk")
        project = copy_project(folder / "project")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    else:
        project = copy_project(tmp_path / "project")
        (project / "results").mkdir(mode=0o500)
    check_refused("cannot be written to", project, RUN)


@pytest.mark.parametrize("name", ["{0}", "a:b"])
def test_folder_whose_name_cannot_be(name, tmp_path):
    check_refused("rename the folder", copy_project(tmp_path / name), "--dry-run")


def test_folder_of_any_other_name_with_foreign_kernels(tmp_path):
    """Its own Python, as uv makes it, lies there, and its logs lie on another file system.

    The name python3 may be that of another kernel, an environment module's or conda's.
    """
    project = copy_project(tmp_path / """it's 100% (größe) $x "q" ;&""")
    (project / ".venv").symlink_to(sys.prefix)
    spec = tmp_path / "jupyter/kernels/python3"
    spec.mkdir(parents=True)
    spec.joinpath("kernel.json").write_text('{"argv": ["false"], "display_name": "other"}')
    others = dict.fromkeys(("JUPYTER_PATH", "JUPYTER_DATA_DIR"), str(tmp_path / "jupyter"))
    another = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=another) as logs:
        (project / "logs").symlink_to(logs)
        program = [project / ".venv/bin/python", *command(RUN)[1:]]
        where = {"cwd": project, "env": environment(project, **others)}
        done = subprocess.run(program, **where, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert not list(Path(logs).rglob("*.ipynb")) and list(Path(logs).rglob("*.log"))
    assert runs.load(project / CD)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write to")
def test_user_without_a_home_and_a_name(tmp_path):
    """As a container may give: a user id, which no list of users has."""
    project = copy_project(tmp_path / "project")
    other = ["unshare", "--user", "--map-user=12345"]
    allowed = shutil.which("unshare") and not subprocess.run([*other, "true"]).returncode
    nobody = environment(project, HOME="/proc/nobody", XDG_CACHE_HOME="")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        nobody.pop(name, None)
    program = [*(other if allowed else []), *command(RUN)]
    done = subprocess.run(program, cwd=project, env=nobody, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-3000:]
    for written in (project / RUN, *project.glob("results/smoke/notebooks/*.ipynb")):
        printed += written.read_text()
    assert "/proc/nobody" not in printed


def test_whatever_becomes_of_the_terminal(tmp_path):
    project = copy_project(tmp_path / "project")
    few = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # letters
    for ending in ("2>&1 | head -n 1", ">&- 2>&-"):
        line = f"set -o pipefail; {shlex.join(command(RUN))} {ending}"
        done = subprocess.run(["bash", "-c", line], cwd=project, env=environment(project, **few))
        assert done.returncode == 0, ending
        assert runs.load(project / CD)
        shutil.rmtree(project / "results")


# ------------------------------------------------------------------------ data and files


def cut_off(project):
    """No address answers any more."""
    path = project / "workflow/config/datasets.yaml"
    path.write_text(re.sub(r"https://\S+", "https://127.0.0.1:9/nothing", path.read_text()))


def test_archive_that_was_changed_or_is_old(tmp_path, monkeypatch):
    """A line for each; what compares with training, without data, says so and does not fail."""
    project = copy_project(tmp_path / "project")
    cut_off(project)
    folder = project / "workflow/archive"
    old = folder / "runs/caltech/as_published/cg-500h/run.json"
    old.write_text(old.read_text().replace(f'"format": {runfile.FORMAT}', '"format": 1'))
    monkeypatch.setattr(archive, "FOLDER", folder)
    archive.write_sums()
    changed = folder / "runs/mnist/as_published/cg-500h/curve.csv"
    changed.write_text(changed.read_text().replace("-1", "-2", 1))

    targets = [f"figures/{name}" for name in ("fig2_mnist.pdf", "fig3_caltech.pdf")]
    targets += ["figures/replay_mnist.md"]
    status, printed = run(project, *targets, config=["scale=quick"], SDCPD_DATA_MIRROR="")
    of_mnist, of_caltech = failures(printed)
    assert status != 0
    assert "cg-500h/curve.csv is not the file that was archived" in of_mnist
    assert f"run file format 1, expected {runfile.FORMAT}" in of_caltech
    assert "not compared" in (project / targets[-1]).read_text()


def test_missing_data_does_not_stop_the_rest(tmp_path):
    """No internet, and in the mirror a truncated file, which must not pass for the whole."""
    project = copy_project(tmp_path / "project")
    cut_off(project)
    (mnist,) = data.files_of("mnist")
    (tmp_path / "mirror" / mnist).parent.mkdir(parents=True)
    (tmp_path / "mirror" / mnist).write_bytes(b"the beginning")
    targets = (RUN, "figures/fig2_mnist.pdf")
    status, printed = run(project, *targets, SDCPD_DATA_MIRROR=str(tmp_path / "mirror"))
    assert status != 0
    assert (project / RUN).exists() and not (project / "data" / mnist).exists()
    (failed,) = failures(printed)
    assert "is damaged (wrong checksum)" in failed and "no connection" in failed
    assert "SDCPD_DATA_MIRROR" in failed
    assert re.search(r"not made: .*fig2_mnist", printed)
