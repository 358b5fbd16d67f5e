"""The workflow as a user runs it, at smoke scale, in copies of the project."""

import re
import shutil
import subprocess
import sys

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
MADE = {
    "curves": ("pdf", "png", "svg", "csv"),
    "samples": ("pdf", "png", "svg", "npz"),
    "table": ("csv", "md", "tex"),
    "grid": ("pdf", "png", "svg", "csv", "md", "tex"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy in which the smoke scale has been run once: all of it, or what needs no data."""
    folder = copy_project(tmp_path_factory.mktemp("workflow") / "project")
    targets = () if have_data() else NO_DATA
    status, printed = run(folder, *targets)
    assert status == 0, printed[-5000:]
    return folder


def made(name):
    kind = (
        "samples" if name.endswith("samples") else "curves" if name.startswith("fig") else "table"
    )
    kind = "grid" if "tuning" in name or "modes" in name else kind
    return [f"figures/{name}.{suffix}" for suffix in MADE[kind]]


def test_smoke_makes_every_figure_and_table(project):
    names = [
        "fig1_bars_and_stripes",
        "figS_bars_and_stripes_samples",
        "table1_timing",
        "validation",
    ]
    if have_data():
        names += ["figS_tuning_bars_and_stripes_4h", "figS_sensitivity_bars_and_stripes"]
        names += ["fig2_mnist", "fig3_caltech", "fig4_kannada", "fig5_mnist_samples"]
        names += [
            "figS_caltech_samples",
            "figS_kannada_samples",
            "claims",
            "figS_hidden_modes_mnist",
        ]
    for name in names:
        for file in made(name):
            assert (project / file).stat().st_size > 100, file
        html = (project / f"results/notebooks/{name}.html").read_text()
        assert "<html" in html
        notebook = nbformat.read(project / f"results/notebooks/{name}.ipynb", as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in code), name
        outputs = [output for cell in code for output in cell.outputs]
        assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


def test_run_files_say_where_they_come_from(project):
    folders = sorted((project / "results/smoke/runs").glob("*/*/*"))
    names = {f"{folder.parent.parent.name}/{folder.name}" for folder in folders}
    assert {f"bars_and_stripes/{algorithm}-4h" for algorithm in ALGORITHMS} <= names
    assert ("mnist/sdcp_d-20h" in names) == have_data()
    assert not list((project / "results").rglob("checkpoint-*"))
    for folder in folders:
        result = runs.load(folder)
        assert set(result.settings) == set(runs.SETTINGS)
        assert result.provenance["device"] and result.provenance["source"] == source_hash("runs")
        alive = result.curve[result.curve.status == "ok"]
        always = "trusted_train" if result.settings["ais"] else "train"
        assert np.isfinite(alive[always]).all() and np.isfinite(alive.train.iloc[-1])


def test_reduced_budget_is_stated_on_the_figure(project):
    text = (project / "figures/fig1_bars_and_stripes.svg").read_text()
    assert "Reduced budget" in text and "paper: 25" in text


def test_table_says_that_it_is_scaled(project):
    assert "scaled to 100" in (project / "figures/table1_timing.md").read_text()


def test_every_check_of_the_validation_holds(project):
    checks = pd.read_csv(project / "figures/validation.csv")
    assert (checks.holds == "yes").all(), checks


def test_second_run_does_nothing(project):
    targets = () if have_data() else NO_DATA
    status, printed = run(project, "-n", *targets)
    assert status == 0 and "Nothing to be done" in printed, printed[-3000:]


def test_one_setting_reruns_exactly_what_depends_on_it(project):
    path = project / "workflow/config/hyperparameters.yaml"
    original = path.read_text()
    content = yaml.safe_load(original)  # dumped with the keys in another order, too
    content["hyperparameters"]["as_published"]["bars_and_stripes"]["pcd"]["learning_rate"] = 0.16
    try:
        path.write_text(yaml.safe_dump(content))
        _, printed = run(project, "-n", *(() if have_data() else NO_DATA))
    finally:
        path.write_text(original)
    expected = {TOGETHER: 1, "curves": 1, "samples": 1}
    expected |= {"claims": 1, "site": 1} if have_data() else {}
    assert jobs(printed) == expected, printed[-3000:]
    assert "Train cd, pcd, cg, sdcp, sdcp_d: bars_and_stripes-as_published-4h" in printed


def rerun(project, *targets, config=()):
    """What would be made again, from the second of its kind on, for one figure."""
    targets = targets or ("figures/fig1_bars_and_stripes.pdf",)
    status, printed = run(project, "-n", *targets, config=config)
    assert status == 0, printed[-3000:]
    return jobs(printed)


def test_figure_of_other_settings_is_made_again(project):
    """Whatever its path does not say: scale, engine, archived or trained, hyperparameters."""
    assert rerun(project) == {}
    assert rerun(project, config=["scale=quick"]) == {TOGETHER: 1, "curves": 1}
    assert rerun(project, config=["backend=numpy"]) == {TOGETHER: 1, "curves": 1}
    found = rerun(project, config=["hyperparameters=tuned_speed"])
    assert found.get("curves") == 1
    target = "figures/table1_timing.md"
    assert rerun(project, target, config=["scale=quick"]) == {"timing": 1}
    # what is there is another scale's, though all that this one needs is there, too
    moved = project / "results/quick/runs/bars_and_stripes/as_published"
    shutil.copytree(project / "results/smoke/runs/bars_and_stripes/as_published", moved)
    try:
        assert rerun(project, config=["scale=quick"])["curves"] == 1
    finally:
        shutil.rmtree(project / "results/quick")


def test_saving_a_notebook_is_no_reason(project):
    """Jupyter writes execution counts and outputs; what counts is in the cells."""
    for name, expected in (("train", {TOGETHER: 1, "curves": 1}), ("curves", {"curves": 1})):
        path = project / f"notebooks/{name}.ipynb"
        original = path.read_text()
        notebook = nbformat.reads(original, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        code[-1].execution_count = 7
        code[-1].outputs = [nbformat.v4.new_output("stream", text="seen")]
        try:
            nbformat.write(notebook, path)
            assert rerun(project) == {}
            code[-1].source += "\n"
            nbformat.write(notebook, path)
            assert rerun(project) == expected
        finally:
            path.write_text(original)


def test_a_change_in_a_module_reaches_all_that_use_it(project):
    """But it is not trained again for what only draws."""
    drawn = {"curves": 1, "samples": 1, "validation": 1, "timing": 1}
    for module, reached in (("study/tuning", drawn), ("study/timing", {"timing": 1})):
        path = project / f"src/sdcpd/{module}.py"
        original = path.read_text()
        try:
            path.write_text(original + "# changed\n")
            assert rerun(project, *NO_DATA) == reached
        finally:
            path.write_text(original)


def test_trials_in_jobs_of_their_own(project, tmp_path):
    """Put together, they are the run that one job makes."""
    fresh, folder = copy_project(tmp_path / "project"), CD.replace("cd-4h", "sdcp_d-4h")
    scale, config = fresh / "workflow/config/smoke.yaml", ["trials_per_job=1"]
    apart = scale.read_text().replace("epochs: 40\n", "epochs: 40\n    one_job: false\n")
    scale.write_text(apart)
    target = f"{folder}/run.json"
    _, printed = run(fresh, "-n", target, config=config)
    assert jobs(printed) == {"train_part": 2, "train": 1}
    status, printed = run(fresh, target, config=config)
    assert status == 0, printed[-3000:]
    for part in ("curve.csv", "models.npz", "run.json"):
        assert (fresh / folder / part).read_bytes() == (project / folder / part).read_bytes(), part


def test_report_is_built(project):
    targets = () if have_data() else NO_DATA
    snakemake = [sys.executable, "-m", "snakemake", "--config", "scale=smoke", "--report"]
    made_of = subprocess.run(  # without --cores, as in the README
        [*snakemake, "report.html", "--", *targets],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
    )
    assert made_of.returncode == 0, made_of.stderr[-3000:]
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


@pytest.mark.skipif(not have_data(), reason="no files of the large datasets")
def test_site_after_a_failure_says_what_is_missing(project):
    path = project / "notebooks/overfitting.ipynb"
    original = path.read_text()
    index = project / "figures/site/index.html"
    try:
        path.write_text(original.replace("figures.overfitting(", "figures.broken_on_purpose("))
        status, printed = run(project, "figures/site/index.html")
        text = check_page(index).text
    finally:
        path.write_text(original)
        after, _ = run(project, "figures/site/index.html")
    assert status != 0 and "broken_on_purpose" in printed
    assert text.count("Not made.") == 1 and "images/fig1_bars_and_stripes.svg" in text
    assert after == 0 and "Not made." not in check_page(index).text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "figures.save(figure, output)",
            "raise ValueError('broken on purpose')",
            "broken on purpose",
        ),
        ("published_figure = None", "published_number = None", "has no parameter published_figure"),
    ],
)
def test_broken_notebook_fails_and_can_be_read(project, before, after, words):
    path = project / "notebooks/curves.ipynb"
    original = path.read_text()
    assert before in original
    try:
        path.write_text(original.replace(before, after))
        status, printed = run(project, "figures/fig1_bars_and_stripes.pdf")
    finally:
        path.write_text(original)
    assert status != 0
    lines = failures(printed)
    assert len(lines) == 1 and words in lines[0], printed[-3000:]
    if "raise" in after:  # executed up to the broken cell, which is there with its error
        kept = nbformat.read(project / "logs/smoke/fig1_bars_and_stripes.ipynb", as_version=4)
        outputs = [o for cell in kept.cells for o in cell.get("outputs", [])]
        assert [o.evalue for o in outputs if o.output_type == "error"] == ["broken on purpose"]


def test_readme_performance_is_that_of_the_records():
    """No number in it was typed in; without a GPU record it says so."""
    subprocess.run([sys.executable, "benchmarks/readme.py", "--check"], cwd=ROOT, check=True)
    if not list((ROOT / "benchmarks/records").glob("updates-gpu-*")):
        assert "**One GPU**: not measured yet" in (ROOT / "README.md").read_text()
