"""workflow/catalogue.py: what there is to make, and of what."""

import json

import catalogue
import pytest
from snakemake.exceptions import WorkflowError

from sdcpd import ROOT, experiments


@pytest.fixture
def make(monkeypatch):
    """A function that makes the catalogue of a scale, with changes of the configuration."""
    monkeypatch.chdir(ROOT)

    def of(scale="quick", backend="numba", **changes):
        return catalogue.Catalogue(experiments.read(scale) | changes, backend, scale)

    return of


@pytest.mark.parametrize(
    ("scale", "backend"), [("paper", "cupy"), ("quick", "numba"), ("smoke", "numba")]
)
def test_every_item_has_its_notebook_its_place_and_all_parameters(scale, backend, make):
    for name, item in make(scale, backend).items.items():
        notebook = ROOT / f"notebooks/{item.kind}.ipynb"
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        (tagged,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
        known = {line.split(" = ")[0] for line in tagged["source"] if " = " in line}
        assert {*item.parameters} <= known, name
        assert (ROOT / f"workflow/report/{item.kind}.rst").exists()
        assert item.title


def test_the_paper_is_complete(make):
    """Table 1 and Figures 1 to 5, and all that is mentioned, under their own names."""
    found = make()
    names = {name for name, item in found.items.items() if item.by_default}
    assert names >= {
        *("table1_timing", "fig1_bars_and_stripes", "fig2_mnist", "fig3_caltech", "fig4_kannada"),
        *("fig5_mnist_samples", "figS_bars_and_stripes_8h", "figS_bars_and_stripes_16h"),
        *("figS_caltech_samples", "figS_kannada_samples", "claims", "validation"),
    }
    assert found.items["fig2_mnist"].title == "Figure 2: MNIST, 500 hidden units"
    assert found.items["fig2_mnist"].parameters["published_figure"] == 2
    shown = [name for _, _, _, titles in found.site()["parts"] for name in titles]
    assert sorted(shown) == sorted(names)


def test_runs_come_from_the_archive_or_from_here(make):
    """Small models are always trained here, unless it is asked for."""
    large = "mnist", "cd", 500, "as_published"
    archived = "workflow/archive/runs/mnist/as_published/cd-500h"
    assert make().run(*large) == archived
    assert make(runs="train").run(*large) == archived.replace("workflow/archive", "results/quick")
    assert make(backend="cupy").run(*large).startswith("results/quick/")
    other = make()
    other.groups["as_published"]["mnist"]["cd"]["learning_rate"] *= 2  # of this it has none
    assert other.run(*large).startswith("results/quick/")

    small = "bars_and_stripes", "cd", 4
    assert make().run(*small, "as_published").startswith("results/quick/runs/")
    place = "sweeps/bars_and_stripes/tuning/cd-4h"
    assert make().sweep(*small, "tuning") == f"workflow/archive/{place}"
    assert make(runs="train").sweep(*small, "tuning") == f"results/quick/{place}"


def test_samples_of_every_group_that_was_measured(make):
    found, name = make(), "sample_quality_caltech"
    for group, names in (
        ("tuned_speed", experiments.read()["experiments"]["caltech"]["algorithms"]),
        ("step_matched", ["cg", "sdcp"]),
        ("lambda_0.9", ["sdcp_d"]),
    ):
        item, place = found.items[f"{name}_{group}"], f"workflow/archive/runs/caltech/{group}"
        assert item.by_default and experiments.GROUPS[group] in item.title
        assert item.parameters["runs"] == [f"{place}/{algorithm}-500h" for algorithm in names]
    anew, trained = make(measurements="again").items, make(runs="train").items
    assert anew[name].by_default and not anew[f"{name}_tuned_final"].by_default
    assert trained[f"{name}_tuned_final"].by_default
    assert not trained[f"{name}_tuned_speed"].by_default


def test_figures_are_of_the_hyperparameters_asked_for(make):
    tuned = make(hyperparameters="tuned_speed").items["fig1_bars_and_stripes"].parameters["runs"]
    assert len(tuned) == 5 and all("/tuned_speed/" in folder for folder in tuned)


def test_shorter_runs_of_the_archive(make, monkeypatch, tmp_path):
    """Of fewer epochs, with more trials: where there is no other; the claims get both."""
    found = make()
    settings = found.run_settings("mnist", "as_published", "cd", 500)
    other = settings | {"hyperparameters": {"learning_rate": 7.0}}
    stored = {"as_published_40/cd": settings, "as_published/cd": settings}
    stored |= {"as_published_40/pcd": settings | {"algorithm": "pcd"}, "as_published_9/cd": other}
    for place, content in stored.items():
        folder = tmp_path / f"runs/mnist/{place}-500h"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"settings": content}))
    monkeypatch.setattr(catalogue, "ARCHIVE", str(tmp_path))
    found.groups["as_published"]["mnist"]["pcd"] = {"learning_rate": 0.04}  # as stored
    place = f"{tmp_path}/runs/mnist/as_published"
    assert found.run("mnist", "cd", 500, "as_published") == f"{place}/cd-500h"
    assert found.run("mnist", "pcd", 500, "as_published") == f"{place}_40/pcd-500h"
    assert found.run("mnist", "cg", 500, "as_published").startswith("results/quick/")
    found._claims()
    judged = found.items["claims"].parameters["runs"]
    judged = [folder for folder in judged if "/mnist/as_published" in folder]
    expected = [f"{place}/cd-500h", f"{place}_40/cd-500h", f"{place}_40/pcd-500h"]
    assert judged[:3] == expected and not any(str(tmp_path) in folder for folder in judged[3:])


def test_a_tuning_without_its_runs_makes_nobody_train_for_days(make):
    """Where the large datasets come from the archive: not before it has them."""
    tuned = {"cd": {"learning_rate": 7.0}}
    for runs, made in (("auto", []), ("train", ["cd"])):
        found = make(runs=runs)
        found.groups.setdefault("tuned_speed", {})["mnist_500h"] = tuned
        assert found.algorithms("mnist", 500, "tuned_speed") == made
        found.items.clear()
        found._curves()
        assert ("figS_mnist_500h_tuned_speed" in found.items) == bool(made)


def test_of_large_datasets_what_the_archive_lacks_is_not_shown(make, monkeypatch):
    """Beside what it has, of which the figures and the claims then are."""
    found, large = make(), ("kannada", 500)
    of_tuning = {"kannada_500h": {"cd": {"learning_rate": 7.0}}}
    found.groups = {"as_published": found.groups["as_published"], "tuned_speed": of_tuning}
    found._refuted()
    item = found.items["figS_refuted_kannada"]
    assert item.parameters["groups"] == {"as_published": found.runs(*large, "as_published")}
    assert item.by_default

    place = "workflow/archive/sweeps/mnist"
    sweeps = {"sensitivity_as_published": place, "sensitivity_tuned_speed": "results/quick/sweeps"}
    monkeypatch.setattr(found, "sweep", lambda *which: sweeps[which[-1]])
    monkeypatch.setattr(found, "tuned_groups", lambda *which: ["tuned_speed"])
    found._sensitivity()
    item = found.items["figS_sensitivity_mnist"]
    assert item.parameters["sweeps"] == {"as_published": place} and item.by_default
    assert len(found.items["figS_sensitivity_bars_and_stripes"].parameters["sweeps"]) == 2


def test_trials_of_a_run_are_shared_out(make):
    class Wildcards(dict):
        __getattr__ = dict.get

    which = Wildcards(experiment="mnist", group="as_published", algorithm="cd", n_hidden="500")
    assert make("paper").train_parameters(which)["parts"] == []
    found = make("paper", trials_per_job=4)
    whole = found.train_parameters(which)
    part = found.train_parameters(Wildcards(which, first="4", last="7"))
    place = "mnist/as_published/cd-500h"
    ends = ["0-3", "4-7", "8-9"]
    assert whole["parts"] == [f"results/paper/parts/{place}/{end}" for end in ends]
    assert [*whole["runs"]] == [f"results/paper/runs/{place}"] and "only_trials" not in whole
    assert [*part["runs"]] == whole["parts"][1:2] and part["only_trials"] == [4, 7]
    assert [*part["runs"].values()] == [*whole["runs"].values()]


def test_small_trainings_share_a_job(make):
    """All that a group has, and each run only once."""
    found = make("paper", trials_per_job=4)
    small = found.together["train-bars_and_stripes-step_matched-8h"]
    assert [run["algorithm"] for run in small.values()] == ["cg", "sdcp"]
    every = [folder for runs in found.together.values() for folder in runs]
    assert len({*every}) == len(every) and all("bars_and_stripes" in folder for folder in every)
    assert found.parts(("bars_and_stripes", "as_published", "cd", 4)) == []
    for folder in found.items["fig1_bars_and_stripes"].parameters["runs"]:
        assert found.site()["runs"][folder] == "train-bars_and_stripes-as_published-4h"


def test_claims_are_judged_by_all_that_is_made(make):
    found = make()
    item = found.items["claims"]
    for name, other in found.items.items():
        by_sweeps = other.kind in ("tune", "sensitivity") and "published" not in name
        if other.by_default and by_sweeps:
            sweeps = other.parameters["sweeps"]
            folders = sweeps.values() if isinstance(sweeps, dict) else sweeps
            assert {*folders} <= {*item.parameters["sweeps"]}
    assert {*found.items["fig3_caltech"].parameters["runs"]} <= {*item.parameters["runs"]}
    assert all(f"{folder}/curve.csv" in item.sources for folder in item.parameters["runs"])


def test_what_cannot_be_had_is_one_line(make):
    with pytest.raises(WorkflowError, match="hyperparameters.yaml has no cd for mnist") as error:
        make().run_settings("mnist", "nothing", "cd", "500")
    assert "\n" not in str(error.value)
