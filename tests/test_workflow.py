"""The workflow as a user runs it, at smoke scale, in copies of the project."""

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml
from project import CD, TOGETHER, copy_project, environment, failures, have_data, jobs, run
from test_site import BROWSER, check_in_browser, check_page

from sdcpd import ROOT, runs
from sdcpd.algorithms import ALGORITHMS
from sdcpd.sources import source_hash

NO_DATA = ("fig1_bars_and_stripes.pdf", "figS_bars_and_stripes_samples.pdf", "validation.md")
NO_DATA = tuple(f"figures/{name}" for name in (*NO_DATA, "table1_timing.md"))
TARGETS = () if have_data() else NO_DATA  # all, or what needs no data


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy in which the smoke scale has been run once."""
    folder = copy_project(tmp_path_factory.mktemp("workflow") / "project")
    status, printed = run(folder, *TARGETS)
    assert status == 0, printed[-5000:]
    return folder


@contextmanager
def edited(path, before, after):
    """The file with another text in one place, as long as this lasts."""
    original = path.read_text()
    assert before in original
    path.write_text(original.replace(before, after, 1))
    try:
        yield
    finally:
        path.write_text(original)


def planned(project, *targets, config=()):
    """What would be made again."""
    status, printed = run(project, "-n", *targets, config=config)
    assert status == 0, printed[-3000:]
    return jobs(printed)


def test_figures_tables_and_notebooks_are_whole(project):
    """That they are there, Snakemake knows."""
    for file in (project / "figures").glob("*.*"):
        assert file.stat().st_size > 100, file
    notebooks = {path.stem: path for path in project.glob("results/**/notebooks/*.ipynb")}
    assert {"fig1_bars_and_stripes", "table1_timing", "validation"} <= {*notebooks}
    for name, path in notebooks.items():
        assert "<html" in path.with_suffix(".html").read_text()
        cells = nbformat.read(path, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code), name
        outputs = [output for cell in code for output in cell.outputs]
        assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


def test_what_figures_and_tables_say(project):
    """Where less than the paper's budget was spent; and that the mathematics holds."""
    figure = (project / "figures/fig1_bars_and_stripes.svg").read_text()
    assert "Reduced budget" in figure and "paper: 25" in figure
    assert "scaled to 100" in (project / "figures/table1_timing.md").read_text()
    checks = pd.read_csv(project / "figures/validation.csv")
    assert (checks.holds == "yes").all(), checks


def test_run_files_say_where_they_come_from(project):
    assert not list((project / "results").rglob("checkpoint-*"))
    folders = sorted((project / "results/smoke/runs").glob("*/*/*"))
    assert len(folders) >= len(ALGORITHMS)
    for folder in folders:
        result = runs.load(folder)
        assert result.provenance["device"] and result.provenance["source"] == source_hash("runs")
        alive = result.curve[result.curve.status == "ok"]
        always = "trusted_train" if result.settings["ais"] else "train"
        assert np.isfinite(alive[always]).all() and np.isfinite(alive.train.iloc[-1])


def test_second_run_does_nothing(project):
    """Though Jupyter has saved notebooks: what counts is in their cells."""
    for name in ("train", "curves"):
        path = project / f"notebooks/{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
        last.execution_count = 7
        last.outputs = [nbformat.v4.new_output("stream", text="seen")]
        nbformat.write(notebook, path)
    status, printed = run(project, "-n", *TARGETS)
    assert status == 0 and "Nothing to be done" in printed, printed[-3000:]


def test_one_setting_reruns_exactly_what_depends_on_it(project):
    path = project / "workflow/config/hyperparameters.yaml"
    original = path.read_text()
    content = yaml.safe_load(original)  # dumped with the keys in another order, too
    content["hyperparameters"]["as_published"]["bars_and_stripes"]["pcd"]["learning_rate"] = 0.16
    with edited(path, original, yaml.safe_dump(content)):
        _, printed = run(project, "-n", *TARGETS)
    expected = {TOGETHER: 1, "curves": 1, "samples": 1}
    expected |= {"claims": 1, "site": 1} if have_data() else {}
    assert jobs(printed) == expected, printed[-3000:]
    assert "Train cd, pcd, cg, sdcp, sdcp_d: bars_and_stripes-as_published-4h" in printed


def test_a_change_in_the_code_reaches_all_that_uses_it(project):
    """But nothing is trained again for what only draws."""
    study, notebook = project / "src/sdcpd/study", project / "notebooks/train.ipynb"
    with edited(study / "tuning.py", '"""', '"""Changed. '):
        drawn = {"curves": 1, "samples": 1, "validation": 1, "timing": 1}
        assert planned(project, *NO_DATA) == drawn
    with (
        edited(study / "timing.py", '"""', '"""Changed. '),
        edited(notebook, "figures.trial_curves(run)", "figures.trial_curves(run )"),
    ):
        reached = {TOGETHER: 1, "curves": 1, "samples": 1, "timing": 1}
        assert planned(project, *NO_DATA) == reached


def test_what_other_settings_made_is_made_again(project):
    """Of an engine and a scale the paths of figures and tables say nothing."""
    figure, table = "figures/fig1_bars_and_stripes.pdf", "figures/table1_timing.md"
    found = planned(project, figure, config=["backend=numpy"])
    assert found == {TOGETHER: 1, "curves": 1}
    # even if all is there that the figure of the other scale needs
    place = "runs/bars_and_stripes/as_published"
    shutil.copytree(project / "results/smoke" / place, project / "results/quick" / place)
    found = planned(project, figure, table, config=["scale=quick"])
    assert found == {"curves": 1, "timing": 1}


def test_trials_in_jobs_of_their_own(project, tmp_path):
    """Put together, they are the run that one job makes."""
    fresh, folder = copy_project(tmp_path / "project"), CD.replace("cd-4h", "sdcp_d-4h")
    scale = fresh / "workflow/config/smoke.yaml"
    scale.write_text(scale.read_text().replace("epochs: 40\n", "epochs: 40\n    one_job: false\n"))
    status, printed = run(fresh, f"{folder}/run.json", config=["trials_per_job=1"])
    assert status == 0 and jobs(printed) == {"train_part": 2, "train": 1}, printed[-3000:]
    for part in ("curve.csv", "models.npz", "run.json"):
        assert (fresh / folder / part).read_bytes() == (project / folder / part).read_bytes(), part


def test_report_is_built(project):
    """Without --cores, as in the README."""
    program = [sys.executable, "-m", "snakemake", "--config", "scale=smoke"]
    program += ["--report", "report.html", "--", *TARGETS]
    subprocess.run(program, cwd=project, env=environment(project), check=True)
    assert (project / "report.html").stat().st_size > 100_000


@pytest.mark.skipif(not have_data(), reason="no files of the large datasets")
def test_site_shows_what_was_made(project, tmp_path):
    site = project / "figures/site"
    index = check_page(site / "index.html")
    assert "Not made" not in index.text and str(project) not in index.text
    for page in site.glob("notebooks/*.html"):
        check_page(page)
    figures = [page.stem for page in (project / "results/notebooks").glob("fig*.html")]
    assert len(figures) > 10 and "figS_anchor_bars_and_stripes" in figures
    for name in figures:
        assert f"images/{name}.svg" in index.resources
    trained = {path.parent for path in (project / "results/smoke").rglob("run.json")}
    for folder in trained:  # each with its notebook
        assert re.search(rf">{folder.name}</a>", index.text)
    if BROWSER:
        check_in_browser([site / "index.html", site / "notebooks/claims.html"], tmp_path)


def test_broken_notebooks_fail_and_the_rest_is_made(project):
    """What failed can be read, and the site says what is missing; repaired, all is there."""
    index, checks = project / "figures/site/index.html", project / "notebooks/validation.ipynb"
    with (
        edited(checks, "checks = []", "raise ValueError('broken on purpose')"),
        edited(project / "notebooks/timing.ipynb", "seconds_output = ", "seconds_file = "),
    ):
        status, printed = run(project, *TARGETS)
    reached = {"validation": 1, "timing": 1} | ({"claims": 1, "site": 1} if have_data() else {})
    assert status != 0 and jobs(printed) == reached, printed[-3000:]
    of_timing, of_validation = failures(printed)
    assert "timing.ipynb has no parameter seconds_output" in of_timing
    assert "broken on purpose" in of_validation
    # executed up to the broken cell, which is there with its error
    kept = nbformat.read(project / "logs/smoke/validation.ipynb", as_version=4)
    outputs = [output for cell in kept.cells for output in cell.get("outputs", [])]
    assert [o.evalue for o in outputs if o.output_type == "error"] == ["broken on purpose"]
    if have_data():
        text = check_page(index).text
        assert text.count("Not made.") == 3 and "images/fig1_bars_and_stripes.svg" in text
    status, printed = run(project, *TARGETS)
    assert status == 0, printed[-3000:]
    assert not have_data() or "Not made." not in check_page(index).text


def test_readme_performance_is_that_of_the_records():
    """No number in it was typed in."""
    subprocess.run([sys.executable, "benchmarks/readme.py", "--check"], cwd=ROOT, check=True)
