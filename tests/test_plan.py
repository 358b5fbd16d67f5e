"""`snakemake plan`: what would run is what snakemake says, and nothing is made."""

import json
import re
import time

import pytest
import yaml
from project import copy_project, jobs, run

from sdcpd import engine

# of one core, see benchmarks/records; planted, so that nothing is measured here
RATES = {"cd": 0.09, "sdcp_d": 0.12, "gibbs": 0.0035, "ascent": 0.006, "temperature": 0.0027}
RATES |= {"image": 2e-5, "small_call": 1e-4, "small_replica": 1e-5, "state": 5e-7, "notebook": 6.0}


@pytest.fixture
def project(tmp_path):
    folder = copy_project(tmp_path / "project")
    kept = {"engine": engine.choose()[0], "made": time.time(), "rates": RATES}
    (folder / ".snakemake").mkdir()
    (folder / ".snakemake/calibration.json").write_text(json.dumps(kept))
    return folder


def plan(project, *arguments, config=()):
    """Target -> what is printed of it; and the last line."""
    status, printed = run(project, "plan", "-q", "all", *arguments, config=config)
    assert status == 0, printed[-3000:]
    table = printed[printed.index("target ") :]
    table = re.sub(r"\n {40,}", " ", table).split("\n\n")[0]  # long lines go on, indented
    return dict(line.split(maxsplit=1) for line in table.splitlines()[1:]), printed.splitlines()[-1]


def counts(text):
    """Number of jobs of each rule, as printed; their sum is printed too."""
    total, parts = re.search(r"(\d+): (.*)$", text).groups()
    found = {rule: int(n) for n, rule in (part.split() for part in parts.split(", "))}
    assert sum(found.values()) == int(total)
    return found


def test_plan_is_what_snakemake_would_do(project):
    lines, last = plan(project)
    assert not (project / "results/smoke").exists() and not list(project.glob("figures/*.csv"))
    _, printed = run(project, "-n")
    assert counts(lines.pop("together,")) == jobs(printed)
    inputs = re.search(r"rule all:\n    input: (.*)", printed)[1]
    wanted = {re.sub(r".*/|\.\w+$", "", file) for file in inputs.split(", ")}
    assert wanted - {"index"} <= set(lines)  # index.html is a rule's with another name
    assert counts(lines["fig1_bars_and_stripes"]) == {"train": 5, "curves": 1}
    assert counts(lines["fig2_mnist"]) == {"download": 1, "train": 5, "curves": 1}
    value, unit = lines["fig1_bars_and_stripes"].split()[:2]  # four notebooks deep, and the start
    assert 24 < float(value) * {"s": 1, "min": 60}[unit] < 24 + 90
    assert re.search("GB of memory and .* GB of disk are free", last)

    status, printed = run(project, "figures/table1_timing.md")
    assert status == 0, printed[-3000:]
    lines, _ = plan(project)
    assert lines["table1_timing"] == "up to date"
    assert "timing" not in counts(lines["claims"]) and "timing" not in counts(lines["together,"])


def test_plan_is_of_the_configuration_of_the_caller(project):
    """Nine trials of the paper's MNIST take two days, an archived curve a notebook."""
    own = {"experiments": {"mnist": {"trials": 9}}}
    (project / "own.yaml").write_text(yaml.safe_dump(own))
    config = ["scale=paper", "runs=train", "trials_per_job=3"]
    lines, _ = plan(project, "--configfile", "own.yaml", config=config)
    of_each = counts(lines["fig2_mnist"])
    assert of_each["train_part"] == 15 and of_each["train"] == 5
    hours = float(re.match(r"(\S+) h ", lines["fig2_mnist"])[1])
    updates = 9 * 200 * 300 * 8 // 3  # 15 jobs of three trials on two cores, 8 on one of them
    assert updates * 0.09 / 3600 < hours < updates * 0.15 / 3600
    assert re.search(r"shared jobs once +\S+ days ", lines["together,"])
    lines, _ = plan(project, config=["scale=paper", "runs=archive"])
    assert counts(lines["fig2_mnist"]) == {"curves": 1}
