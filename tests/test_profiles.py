"""The profiles name what exists, agree on what they share, and the one for Slurm plans jobs."""

import re
from importlib.util import find_spec

import pytest
import yaml
from catalogue import KINDS
from project import copy_project, jobs, run

from sdcpd import ROOT, engines

PROFILES = ROOT / "workflow/profiles"
DEFAULT, SLURM = (
    yaml.safe_load((PROFILES / name / "config.yaml").read_text()) for name in ("default", "slurm")
)
RESOURCES = {"mem_mb", "runtime", "slurm_extra"}  # of snakemake and of its executor for Slurm
needs_slurm = pytest.mark.skipif(
    not find_spec("snakemake_executor_plugin_slurm"), reason="needs uv run --extra slurm"
)


def rules():
    """name -> text of every rule with a text of its own; of one that takes its resources from
    another, with that one's."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    text += (ROOT / "Snakefile").read_text()
    found = {}
    start = r"^(?:rule|use rule (\w+) as) (\w+)(?: with)?:\n((?:[ \t].*\n|\n)*)"
    for base, name, own in re.findall(start, text, re.M):
        found[name] = own if "resources:" in own or not base else own + found[base]
    return found


def test_profiles_agree_on_what_they_share():
    """For whoever has the other one with --workflow-profile, without the default one."""
    shared = {key: value for key, value in DEFAULT.items() if key != "resources"}
    assert shared.items() <= SLURM.items()
    assert DEFAULT["resources"] == ["gpu=4"]
    assert SLURM["set-resource-scopes"] == ["gpu=local"]  # else 4 would be the limit there, too


def test_slurm_profile_names_rules_and_resources_that_exist():
    assert set(SLURM["set-resources"]) <= {*rules(), *KINDS}
    assert all(set(values) <= RESOURCES for values in SLURM["set-resources"].values())
    assert {each.split("=")[0] for each in SLURM["default-resources"]} <= RESOURCES


def test_every_rule_that_uses_a_gpu_has_its_own_resources_on_slurm():
    on_gpu = {name for name, text in rules().items() if re.search("gpu=(?!0,)", text)}
    on_gpu |= {name for name, kind in KINDS.items() if kind.computes}
    assert {"train", "train_part", "timing"} <= on_gpu <= set(SLURM["set-resources"])


@needs_slurm
def test_slurm_profile_plans_jobs_of_an_engine_that_must_be_named(tmp_path):
    """On a GPU that is not here."""
    fresh = copy_project(tmp_path / "project")
    profile = ["--profile", "workflow/profiles/slurm"]
    status, printed = run(fresh, *profile, "-n", "figures/fig2_mnist.pdf", config=["scale=paper"])
    assert status == 0, printed[-3000:]
    assert jobs(printed) == {"download": 1, "train": 5, "curves": 1}
    status, printed = run(
        fresh, *profile, "figures/fig1_bars_and_stripes.pdf", config=["backend=auto"]
    )
    words = "the jobs run on other machines: name their engine"
    assert status != 0 and len([ln for ln in printed.splitlines() if words in ln]) == 1, printed


def test_engine_of_this_machine_is_tried_here():
    if engines.gpu_problem() is None:
        pytest.skip("there is a GPU here")
    status, printed = run(ROOT, "-n", config=["backend=cupy"])
    assert status != 0 and "backend cupy asked for, but" in printed
