"""The profiles name what exists, agree on what they share, and the one for Slurm plans jobs."""

import importlib
import re
from importlib.util import find_spec

import pytest
import yaml
from project import copy_project, jobs, run
from snakemake.cli import get_argument_parser

from sdcpd import ROOT, engines

PROFILES = {path.parent.name: path for path in (ROOT / "workflow/profiles").glob("*/config.yaml")}
SETTINGS = {name: yaml.safe_load(path.read_text()) for name, path in PROFILES.items()}
SLURM = SETTINGS["slurm"]
# of snakemake and of its executor for Slurm
RESOURCES = {"mem_mb", "runtime", "slurm_extra"}
needs_slurm = pytest.mark.skipif(
    not find_spec("snakemake_executor_plugin_slurm"), reason="needs uv run --extra slurm"
)


@pytest.fixture
def kinds(monkeypatch):
    """The rules of figures and tables."""
    monkeypatch.syspath_prepend(ROOT / "workflow")
    return importlib.import_module("catalogue").KINDS


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


def test_profiles_are_options_of_snakemake():
    known = {o for action in get_argument_parser()._actions for o in action.option_strings}
    for name, settings in SETTINGS.items():
        unknown = {f"--{key}" for key in settings} - known
        assert {option for option in unknown if not option.startswith("--slurm-")} == set(), name


def test_profiles_agree_on_what_they_share():
    """For whoever has the other one with --workflow-profile, without the default one."""
    default = SETTINGS["default"]
    assert {key: SLURM.get(key) for key in default if key != "resources"} == {
        key: value for key, value in default.items() if key != "resources"
    }
    assert default["resources"] == ["gpu=4"]
    assert SLURM["set-resource-scopes"] == ["gpu=local"]  # else 4 would be the limit there, too


def test_slurm_profile_names_rules_and_resources_that_exist(kinds):
    assert set(SLURM["set-resources"]) <= {*rules(), *kinds}
    assert all(set(values) <= RESOURCES for values in SLURM["set-resources"].values())
    assert {each.split("=")[0] for each in SLURM["default-resources"]} <= RESOURCES


def test_every_rule_that_uses_a_gpu_has_its_own_resources_on_slurm(kinds):
    on_gpu = {name for name, text in rules().items() if re.search("gpu=(?!0,)", text)}
    on_gpu |= {name for name, kind in kinds.items() if kind.computes}
    assert {"train", "train_part", "timing"} <= on_gpu <= set(SLURM["set-resources"])


def test_slurm_profile_names_an_engine():
    (path,) = SLURM["configfile"]
    (backend,) = yaml.safe_load((ROOT / path).read_text()).values()
    assert backend in engines.NAMES


@needs_slurm
@pytest.mark.parametrize("option", ["--profile", "--workflow-profile"])
def test_slurm_profile_plans_jobs_on_a_gpu_that_is_not_here(tmp_path, option):
    fresh = copy_project(tmp_path / "project")
    arguments = [option, "workflow/profiles/slurm", "-n", "figures/fig2_mnist.pdf"]
    status, printed = run(fresh, *arguments, config=["scale=paper"])
    assert status == 0, printed[-3000:]
    assert jobs(printed) == {"download": 1, "train": 5, "curves": 1}


@needs_slurm
def test_engine_of_other_machines_must_be_named(tmp_path):
    fresh = copy_project(tmp_path / "project")
    arguments = ["--profile", "workflow/profiles/slurm", "figures/fig1_bars_and_stripes.pdf"]
    status, printed = run(fresh, *arguments, config=["backend=auto"])
    words = "the jobs run on other machines: name their engine"
    assert status != 0 and len([ln for ln in printed.splitlines() if words in ln]) == 1, printed


def test_engine_of_this_machine_is_tried_here():
    if engines.gpu_problem() is None:
        pytest.skip("there is a GPU here")
    status, printed = run(ROOT, "-n", config=["backend=cupy"])
    assert status != 0 and "backend cupy asked for, but" in printed
