"""Jobs beside each other each get a GPU of their own. None is needed here: names are shared out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project import CD, copy_project, run

from sdcpd import ROOT

sys.path.insert(0, str(ROOT / "workflow/scripts"))
import devices

# A job: it starts a child, says which GPU it got, and keeps it until it is told to end.
JOB = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT / "workflow/scripts")!r})
import devices
devices.take(1)
child = subprocess.Popen(["sleep", "60"])
print(os.environ["CUDA_VISIBLE_DEVICES"], child.pid, flush=True)
sys.stdin.read()
"""


class Job:
    def __init__(self, folder, visible):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible}
        program = [sys.executable, "-c", JOB]
        self.process = subprocess.Popen(program, cwd=folder, env=environment, text=True, **pipes)
        self.child = None

    def device(self):
        """The one it got; waits until it has one."""
        device, child = self.process.stdout.readline().split()
        self.child = int(child)
        return device

    def waits(self):
        return "waiting" in self.process.stderr.readline()

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(visible):
        jobs.append(Job(tmp_path, visible))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
        for pipe in (job.process.stdin, job.process.stdout, job.process.stderr):
            pipe.close()
        if job.child:
            os.kill(job.child, 9)  # the sleep that it started


def test_jobs_at_once_get_different_devices(start):
    for names in ("0,1,2", "GPU-1a-2b,MIG-GPU-3c/4/0"):
        jobs = [start(names) for _ in names.split(",")]
        assert {job.device() for job in jobs} == set(names.split(","))


def test_more_jobs_than_devices_wait(start):
    running = [start("0,1,2") for _ in range(3)]
    held = [job.device() for job in running]
    late = [start("0,1,2") for _ in range(2)]
    assert all(job.waits() for job in late)
    for job in running[:2]:
        job.end()
    assert {job.device() for job in late} == set(held[:2])


def test_killed_job_frees_its_device(start):
    """Even while what it started lives on."""
    first, other = start("0,1"), start("0,1")
    held = first.device()
    assert {held, other.device()} == {"0", "1"}
    late = start("0,1")
    assert late.waits()
    first.kill()
    assert late.device() == held
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
    targets = [f"{CD}/run.json", f"{CD.replace('cd-4h', 'pcd-4h')}/run.json"]
    resources = ["--set-resources", "train:gpu=1", "--resources", "gpu=2"]
    status, printed = run(project, *targets, *resources, CUDA_VISIBLE_DEVICES="3,5")
    assert status == 0, printed[-3000:]
    assert {path.name for path in (project / devices.LOCKS).iterdir()} == {"3", "5"}
