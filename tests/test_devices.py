"""Jobs beside each other share out the GPUs. None is needed here: only their names are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project import CD, TOGETHER, copy_project, run

from sdcpd import ROOT

sys.path.insert(0, str(ROOT / "workflow/scripts"))
import devices

# A job: it starts a child, says which GPU it got, and keeps it until it is told to end.
JOB = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT / "workflow/scripts")!r})
import devices
devices.take(int(sys.argv[1]))
child = subprocess.Popen(["sleep", "60"])
seen = os.environ["CUDA_VISIBLE_DEVICES"], os.environ["SDCPD_GPU_SHARE"]
print(*seen, child.pid, flush=True)
sys.stdin.read()
"""


class Job:
    def __init__(self, folder, visible, wanted, changes):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible} | changes
        program = [sys.executable, "-c", JOB, str(wanted)]
        self.process = subprocess.Popen(program, cwd=folder, env=environment, text=True, **pipes)
        self.child = None

    def device(self):
        """The one it got."""
        device, share, child = self.process.stdout.readline().split()
        self.child, self.share = int(child), float(share)
        return device

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(visible, wanted=1, **changes):
        jobs.append(Job(tmp_path, visible, wanted, changes))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
        for pipe in (job.process.stdin, job.process.stdout, job.process.stderr):
            pipe.close()
        if job.child:
            os.kill(job.child, 9)  # the sleep that it started


def test_jobs_at_once_get_different_devices(start):
    jobs = [start("GPU-1a-2b,MIG-GPU-3c/4/0") for _ in range(2)]
    assert {job.device() for job in jobs} == {"GPU-1a-2b", "MIG-GPU-3c/4/0"}


def test_more_jobs_than_devices_share_them(start):
    """Evenly; the place of one that ended is taken first."""
    jobs = [start("0,1,2", SDCPD_GPU_JOBS="6") for _ in range(3)]
    held = [job.device() for job in jobs]
    assert sorted(held) == ["0", "1", "2"] and {job.share for job in jobs} == {0.5}
    late = [start("0,1,2", SDCPD_GPU_JOBS="6") for _ in range(2)]
    assert len({job.device() for job in late}) == 2
    jobs[1].end()
    assert start("0,1,2").device() == held[1]


@pytest.mark.parametrize(
    ("at_once", "names", "wanted", "share"),
    [
        ("4", "0", 1, 0.25),
        ("4", "0", 4, 1.0),  # what is timed is alone
        ("3", "0,1", 1, 0.5),
        ("2", "0,1,2,3", 1, 1.0),
        (None, "0", 1, 1.0),  # as on Slurm
    ],
)
def test_share_of_a_gpu(at_once, names, wanted, share, start):
    changes = {"SDCPD_GPU_JOBS": at_once} if at_once else {}
    job = start(names, wanted, **changes)
    assert job.device() in names.split(",") and job.share == share


def test_killed_job_frees_its_device(start):
    """Even while what it started lives on."""
    first, other = start("0,1"), start("0,1")
    held = first.device()
    assert {held, other.device()} == {"0", "1"}
    first.kill()
    assert start("0,1").device() == held
    os.kill(first.child, 0)  # an error if it were gone


def test_one_device_is_nobodys_choice(start):
    """As on Slurm, where each job sees its own, which may have the same number."""
    assert [start("0").device(), start("0").device()] == ["0", "0"]


def test_job_without_a_gpu_takes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    devices.take(0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1" and not Path(".snakemake").exists()


def test_devices_of_the_machine(tmp_path, monkeypatch):
    """Those that nvidia-smi lists, by what stays the same whatever order CUDA counts them in."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'echo "GPU 0: NVIDIA H100 (UUID: GPU-5d5b0f8e-aaaa)"\n'
        'echo "GPU 1: NVIDIA H100 (UUID: GPU-0c3d9a2e-bbbb)"\n'
    )
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.visible() == ["GPU-5d5b0f8e-aaaa", "GPU-0c3d9a2e-bbbb"]
    program.unlink()
    assert devices.visible() == []  # no driver
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert devices.visible() == ["2", "3"]


def test_jobs_of_the_workflow_take_them(tmp_path):
    """Two trainings at once, as on a machine with several GPUs, though a CPU trains them."""
    project = copy_project(tmp_path / "project")
    other = "tuned_speed"
    targets = [f"{CD}/run.json", f"{CD.replace('as_published', other)}/run.json"]
    rules = TOGETHER, TOGETHER.replace("as_published", other)
    resources = ["--set-resources", *(f"{rule}:gpu=1" for rule in rules), "--resources", "gpu=2"]
    status, printed = run(project, *targets, *resources, CUDA_VISIBLE_DEVICES="3,5")
    assert status == 0, printed[-3000:]
    assert {path.name for path in (project / devices.LOCKS).iterdir()} == {"3.0", "5.0"}
