"""Plots and tables: what they show is what the runs and the published files say."""

import os
import subprocess
import sys
import warnings
from itertools import product
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import random_bits, run_of
from matplotlib.colors import to_hex

from sdcpd import ROOT, data, figures
from sdcpd.algorithms import ALGORITHMS, LABELS
from sdcpd.figures import curves
from sdcpd.figures.style import headline
from sdcpd.study.compare import summarize

REFERENCE = ROOT / "workflow/reference"
CURVES_2017 = REFERENCE / "published_curves_2017.csv"
CURVES_2019 = REFERENCE / "published_curves_2019.csv"
AIS = {"n_particles": 100, "n_temperatures": 10_000}
PAPER = {"trials": 3, "epochs": 4, "ais": AIS, "samples": {"n_steps": 5000}}
LONG = PAPER | {"epochs": 200}
EPOCHS = (0, 1, 2, 4)
TIGHT_LAYOUT = plt.Figure.tight_layout


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """No window, and no layout of the figures, which takes most of the time."""
    plt.switch_backend("agg")
    monkeypatch.setattr(plt.Figure, "tight_layout", lambda *arguments, **named: None)
    yield
    plt.close("all")


def make_run(algorithm="cd", dataset="bars_and_stripes", test=None, at=EPOCHS, **changes):
    """A run of three trials, or as many as ``changes`` say, with random likelihoods; or as
    ``run_of`` makes it of likelihoods that are given."""
    if test is None:
        rng = np.random.default_rng(list(ALGORITHMS).index(algorithm))
        test = rng.uniform(-10, -6, (changes.get("trials", 3), len(at)))
    run = run_of(at, test, algorithm=algorithm, dataset=dataset, n_hidden=4, ais=AIS)
    return run._replace(settings=run.settings | changes, curve=run.curve.assign(ess=50.0))


def diverging_run():
    """One trial diverges at epoch 2, another at epoch 4."""
    return make_run(test=[[-7, -5, -4], [-7.5, -7, np.nan], [-8, np.nan, np.nan]], at=(0, 2, 4))


def say(axis):
    return [text.get_text() for text in axis.texts]


def points(line):
    return [tuple(point) for point in line.get_xydata()]


def color_of(algorithm):
    return to_hex(figures.STYLES[algorithm][0])


def line_of(axis, algorithm):
    """The line that is labelled with the algorithm."""
    (line,) = [line for line in axis.lines if line.get_label() == LABELS[algorithm]]
    return line


def dashed(axis):
    """The dashed lines, which are the published ones, by colour."""
    return {to_hex(line.get_color()): line for line in axis.lines if line.get_linestyle() == "--"}


def words_of(figure):
    """The lines of its title and of what stands below it."""
    return [line for text in figure.texts for line in text.get_text().splitlines()]


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


# ----------------------------------------------------------------------------- numbers


def test_summarize():
    run = diverging_run()
    run.curve["ess"] = [50, 40, 60, 30, 20, 1, 10, 1]
    run.curve["valid"] = run.curve.train - 2
    table = summarize(run)
    assert table.epoch.tolist() == [0, 2, 4] and table["update"].tolist() == [0, 20, 40]
    assert table.trials.tolist() == [3, 2, 1]
    assert table.ess.tolist() == [40, 20, 10]
    assert table.train_mean.tolist() == [-6.5, -5, -3]
    assert table.train_max.tolist() == [-6, -4, -3]
    # t σ / √n with σ = .5, √2; t of 2 and 1 degrees of freedom; unknown of one trial
    half = [4.302652730 * 0.5 / 3**0.5, 12.70620474, np.nan]
    np.testing.assert_allclose(table.train_high - table.train_mean, half)
    np.testing.assert_allclose(table.train_mean - table.train_low, half)
    for name in ("mean", "max", "low", "high"):
        np.testing.assert_allclose(table[f"test_{name}"], table[f"train_{name}"] - 1)
        np.testing.assert_allclose(table[f"valid_{name}"], table[f"train_{name}"] - 2)
    assert not any(name.startswith("valid") for name in summarize(make_run()))


def test_published_curves_of_2017():
    found = figures.published(CURVES_2017, dataset="MNIST", learning_rate=0.05)
    assert found.algorithm.value_counts().to_dict() == {"cd": 21, "pcd": 21, "cg": 21, "sdcp": 21}
    raw = pd.read_csv(CURVES_2017)
    assert "CS-DCP" in set(raw.algorithm)  # and is none of ours
    one = raw.query("dataset == 'MNIST' and learning_rate == 0.05 and algorithm == 'S-DCP'")
    assert found[found.algorithm == "sdcp"].avg_loglik.tolist() == one.avg_loglik.tolist()


def test_published_curves_of_2019():
    table = figures.published(CURVES_2019)
    assert len(table) == len(pd.read_csv(CURVES_2019)) == 610
    assert table.figure.value_counts().to_dict() == {1: 90, 2: 160, 3: 180, 4: 180}
    assert set(table.algorithm) == set(ALGORITHMS)
    assert table.groupby("figure").epoch.max().tolist() == [5000, 200, 200, 200]
    # A maximum over trials is no less than their mean.
    table[["part", "statistic"]] = table.panel.str.rsplit("-", n=1).to_list()
    places = ["figure", "part", "algorithm", "epoch"]
    both = table.pivot(index=places, columns="statistic", values="avg_loglik")
    assert len(both) == 305 and (both["max"] >= both["mean"]).all()
    # No distribution has a higher average log-likelihood than the 16 patterns themselves.
    assert (table[table.figure == 1].avg_loglik < -15 / 4 * np.log(2)).all()


def test_published_table_1():
    table = pd.read_csv(REFERENCE / "table1.csv").set_index(["dataset", "algorithm"])
    large, small = (table.loc[name, "mean"] for name in ("Large datasets", "Bars & Stripes"))
    assert large.index.tolist() == small.index.tolist() == list(LABELS.values())
    assert large.tolist() == [248.15, 248.15, 309.51, 317.87, 385.65]
    assert small.tolist() == [1.41, 1.41, 1.79, 1.73, 1.92]
    assert large["S-DCP-D"] / large["S-DCP"] == pytest.approx(1.213, abs=5e-4)
    assert large["S-DCP"] / large["CD"] == pytest.approx(1.281, abs=5e-4)
    assert small["S-DCP-D"] / small["S-DCP"] == pytest.approx(1.110, abs=5e-4)
    assert (table.sigma < 0.05 * table["mean"]).all() and (table.sigma > 0).all()


# ------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"trials": 4, "epochs": 9, "ais": {name: 2 * n for name, n in AIS.items()}}, ""),
        ({"trials": 2, "epochs": 0.5}, "2 trials (paper: 3); 0.5 epochs (paper: 4)"),
        ({"ais": AIS | {"n_temperatures": 2000}}, "AIS with 2,000 temperatures (paper: 10,000)"),
        ({"trials": 1}, "1 trial (paper: 3)"),
        ({"ais": AIS | {"n_particles": 50}}, "50 AIS particles (paper: 100)"),
        ({"ais": None, "epochs": 3}, "3 epochs (paper: 4)"),  # exact, in the paper, too
    ],
)
def test_budget_note(changes, note):
    run = make_run(**changes)
    paper = PAPER if run.settings["ais"] else PAPER | {"ais": None}
    assert figures.budget_note(run, paper) == (f"Reduced budget: {note}." if note else "")


def test_describe_runs():
    assert figures.describe_runs([make_run(), make_run("pcd")], PAPER) == ["CPU test, 2026-01-02"]
    lines = figures.describe_runs([make_run("pcd"), diverging_run()], LONG)
    assert lines[1:] == ["Reduced budget: 4 epochs (paper: 200).", "2 diverged trials left out."]
    other = make_run("cg", test=[[-1, -1], [-1, -1], [-1, np.nan]], at=(0, 4))
    other.provenance["device"], other.wall["finished"] = "GPU test", "2026-01-05T00:00:00"
    assert figures.describe_runs([other, make_run()], PAPER) == [
        "CPU test and GPU test, 2026-01-02 to 2026-01-05",
        "1 diverged trial left out.",
    ]
    low = make_run("sdcp")
    low.curve["ess"] = np.where(low.curve.trial.eq(1) & low.curve.epoch.eq(2), 9.9, 10.0)
    (_, doubt) = figures.describe_runs([low, make_run()], PAPER)
    assert doubt == "Plain AIS at times has an effective sample size below 10: S-DCP."


def test_different_budgets_in_one_figure_are_each_stated():
    shorter = [make_run("cd"), *(make_run(name, epochs=2) for name in ("cg", "sdcp"))]
    for runs, whose in ((shorter, "CG, S-DCP: "), (shorter[1:], "")):
        (_, note) = figures.describe_runs(runs, PAPER)
        assert note == f"{whose}Reduced budget: 2 epochs (paper: 4)."


def test_archived_runs_are_called_so():
    here, kept = make_run(), make_run("cg")._replace(archived=True)
    assert figures.origin_line([kept, here]) == (
        "CPU test, 2026-01-02; archived runs: CPU test, 2026-01-02"
    )


def test_data_in_words():
    titles = [entry["title"] for entry in data.catalogue.catalogue()["datasets"].values()]
    assert len(set(titles)) == len(titles) and data.title_of("a/own.npz") == "own.npz"
    choice = figures.choice({"dataset": "mnist_fresh", "batch_size": 200, "n_hidden": 500})
    assert choice == "MNIST, binarized anew at every visit, batch 200"
    assert figures.model_of(make_run(dataset="mnist")) == "MNIST, 4 hidden units"


# ------------------------------------------------------------------------------- curves


def test_an_algorithm_has_its_own_colour_and_marker():
    assert set(figures.STYLES) == set(LABELS) == set(ALGORITHMS)
    colours, markers = zip(*figures.STYLES.values(), strict=True)
    assert len({to_hex(colour) for colour in colours}) == len(set(markers)) == len(ALGORITHMS)


@pytest.mark.parametrize(
    ("dataset", "panels"),
    [
        ("bars_and_stripes", ["train=test-mean", "train=test-max"]),
        ("mnist", ["train-mean", "train-max", "test-mean", "test-max"]),
    ],
)
def test_likelihood_curves(dataset, panels):
    """Ours solid, beside them a published point in each panel, and a step-matched run dotted."""
    finished = [make_run(name, dataset) for name in ALGORITHMS]
    there = {"epoch": 2, "algorithm": "cd", "panel": panels, "avg_loglik": range(len(panels))}
    matched = make_run("cg", dataset, hyperparameters={"learning_rate": 0.6857})
    figure = figures.likelihood_curves(
        finished, PAPER, pd.DataFrame(there), [matched], "tuned_speed"
    )
    for place, (axis, panel) in enumerate(zip(figure.axes, panels, strict=True)):
        name, statistic = panel.split("-")
        word = {"mean": "mean", "max": "maximum"}[statistic]
        assert axis.get_title() == f"{name.replace('=', ' = ')}, {word} over trials"
        ends = {}
        for run in finished:
            algorithm = run.settings["algorithm"]
            line, values = line_of(axis, algorithm), run.curve.groupby("epoch")
            values = values[name.split("=")[-1]].agg(statistic).reset_index()
            np.testing.assert_allclose(line.get_xydata(), values)
            assert to_hex(line.get_color()) == color_of(algorithm)
            assert line.get_marker() == figures.STYLES[algorithm][1]
            ends[LABELS[algorithm]] = points(line)[-1]
        assert {text.get_text(): text.xy for text in axis.texts} == ends
        assert points(dashed(axis)[color_of("cd")]) == [(2, place)]
        (dotted,) = [line for line in axis.lines if line.get_linestyle() == ":"]
        assert points(dotted) == points(line_of(axis, "cg"))
        assert len(axis.collections) == (5 if statistic == "mean" else 0)  # bands
    step_matched = "CG, step-matched (η = 0.686)"
    assert legend_of(figure) == [*LABELS.values(), step_matched, "published (dashed)"]
    title = words_of(figure)[0]
    assert data.title_of(dataset) in title and "tuned for speed" in title


def test_band_is_the_interval_of_the_mean_of_trials_that_have_not_diverged():
    figure = figures.likelihood_curves([diverging_run()], PAPER)
    assert line_of(figure.axes[0], "cd").get_ydata().tolist() == [-7.5, -6, -4]
    (band,) = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    # The widest is at the second point, with two trials; the last, with one, has none.
    np.testing.assert_allclose(np.nanmin(heights), -6 - 12.70620474)
    np.testing.assert_allclose(np.nanmax(heights), -6 + 12.70620474)
    assert not figures.likelihood_curves([make_run(trials=1)], PAPER).axes[0].collections


@pytest.mark.parametrize(
    ("shorter", "with_published"), [(True, True), (True, False), (False, True)]
)
def test_shorter_run_is_drawn_on_a_logarithmic_axis(shorter, with_published):
    published = figures.published(CURVES_2019, figure=1) if with_published else None
    figure = figures.likelihood_curves([make_run()], LONG if shorter else PAPER, published)
    logarithmic = shorter and with_published
    for axis in figure.axes:
        assert axis.get_xscale() == ("log" if logarithmic else "linear")
        assert ("logarithmic" in axis.get_xlabel()) == logarithmic
        epochs = [epoch for epoch in EPOCHS if epoch > 0 or not logarithmic]
        assert line_of(axis, "cd").get_xdata().tolist() == epochs
        assert len(dashed(axis)) == (5 if with_published else 0)
    assert ("Reduced budget" in " ".join(words_of(figure))) == shorter


@pytest.mark.parametrize(("fall", "is_left_out"), [(1000, True), (0, False)])
def test_rise_before_plain_ais_begins_does_not_take_the_height(fall, is_left_out):
    """Nothing else is left out; and nothing at all where later points are as low."""
    run = refuted_run()
    start = run.curve.epoch == 0
    run.curve.loc[start, ["trusted_train", "trusted_test"]] -= fall
    for axis in figures.likelihood_curves([run], PAPER).axes:
        points = np.concatenate([line.get_xydata() for line in axis.lines])
        low, high = axis.get_ylim()
        shown = (points[:, 1] > low) & (points[:, 1] < high)
        assert shown[points[:, 0] > 0].all()
        assert shown[points[:, 0] == 0].all() != is_left_out
        assert high - low < 50


def test_words_do_not_cover_the_axes(monkeypatch):
    """Above the axes the title and its lines, below them the legend."""
    monkeypatch.setattr(plt.Figure, "tight_layout", TIGHT_LAYOUT)
    low = diverging_run()
    low.curve["ess"] = 1
    published = figures.published(CURVES_2019, figure=1)
    figure = figures.likelihood_curves([low], PAPER | {"trials": 25}, published)
    figure.draw_without_rendering()
    boxes = [axis.get_tightbbox() for axis in figure.axes]
    title, lines = (text.get_window_extent() for text in figure.texts)
    assert len(words_of(figure)) == 1 + 4
    assert title.y0 > lines.y1 and lines.y0 > max(box.y1 for box in boxes)
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 < min(box.y0 for box in boxes)
    assert legend.x0 >= 0 and legend.x1 <= figure.bbox.x1 and title.y1 <= figure.bbox.y1


def test_long_lines_below_a_title_are_no_wider_than_the_figure():
    figure, _ = plt.subplots(figsize=(4, 3))
    headline(figure, "Title", ["word " * 40, "short"])
    extent = figure.texts[1].get_window_extent(figure.canvas.get_renderer())
    assert extent.width < figure.bbox.width
    assert words_of(figure)[1:] == [*wrap("word " * 40, 60), "short"]


@pytest.mark.parametrize("heights", [[0.1, 0.11, 0.12], [0.97, 0.98, 0.99], [-0.2, 0.5, 0.52]])
def test_names_beside_curves_keep_apart(heights):
    places = curves._move_apart(heights, 0.1)
    assert (np.diff(places) >= 0.1 - 1e-9).all() and max(places) <= 1
    assert np.abs(np.subtract(places, heights)).max() < 0.25


@pytest.mark.parametrize("ais", [None, AIS])
def test_known_rates(ais):
    """A panel a rate, and the published curves no further than ours go."""
    published = figures.published(CURVES_2017, dataset="BarsStripes")
    ends = 0, 1000, 2500
    finished = []
    for rate, (name, k, d) in product((0.2, 0.1), (("cd", 12, 1), ("sdcp", 4, 3))):
        changes = {"ais": ais, "n_gibbs_steps": k, "n_inner_iterations": d}
        changes |= {"hyperparameters": {"learning_rate": rate}}
        finished.append(make_run(name, test=np.full((3, 3), -6 - rate), at=ends, **changes))
    figure = figures.known_rates(finished, PAPER, published)
    assert "K = 12, d = 3, K′ = 4, mean over 3 trials" in words_of(figure)[0]
    less = "The first 2,500 of the published curves' 4,550 epochs."
    assert less in "\n".join(words_of(figure))
    as_far = figures.known_rates(finished, PAPER, published[published.epoch <= 2500])
    assert "published curves' " not in "\n".join(words_of(as_far))
    for axis, rate in zip(figure.axes, (0.1, 0.2), strict=True):
        assert f"{rate:g}" in axis.get_title() and len(dashed(axis)) == 2
        for name in ("cd", "sdcp"):
            line = line_of(axis, name)
            # estimated curves begin after the start
            assert line.get_xdata().tolist() == [*ends[ais is not None :]]
            np.testing.assert_allclose(line.get_ydata(), -6 - rate)
            known = published[published.learning_rate.eq(rate) & published.algorithm.eq(name)]
            known = known[known.epoch <= ends[-1]].avg_loglik.tolist()
            assert dashed(axis)[color_of(name)].get_ydata().tolist() == known and len(known) == 5


def test_trial_curves():
    run = make_run(dataset="mnist")
    figure = figures.trial_curves(run)
    for axis, part in zip(figure.axes, ("train", "test"), strict=True):
        *trials, mean = axis.lines
        for trial, line in enumerate(trials):
            assert line.get_ydata().tolist() == run.curve[run.curve.trial == trial][part].tolist()
        np.testing.assert_allclose(mean.get_ydata(), run.curve.groupby("epoch")[part].mean())


@pytest.mark.parametrize("trials", [1, 3])
def test_ablation_curves(trials):
    """A column for each choice, train above test, on the same axes; epoch 0 has no place on a
    logarithmic one. Of one trial no band, and no warning in the notebook."""
    every = []
    for dataset, size in (("mnist", 200), ("mnist_fresh", 200), ("mnist", 100)):
        how = {"batch_size": size, "trials": trials}
        runs = [make_run(name, dataset, **how) for name in ("cd", "sdcp_d")]
        for run in runs:
            run.curve[["train", "test"]] += len(every)  # unlike those of the other choices
        every.append(runs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.ablation_curves(every, PAPER)
    axes = np.reshape(figure.axes, (2, 3))
    titles = ["MNIST\nbatch 200", "MNIST\nbinarized anew at every visit, batch 200"]
    assert [axis.get_title() for axis in axes[0]] == [*titles, "MNIST\nbatch 100"]
    for part, row in zip(("train", "test"), axes, strict=True):
        assert row[0].get_ylabel().startswith(part)
        assert len({axis.get_ylim() for axis in row}) == 1
        for axis, runs in zip(row, every, strict=True):
            for run in runs:
                means = run.curve.groupby("epoch")[part].mean()[1:].reset_index()
                line = line_of(axis, run.settings["algorithm"])
                np.testing.assert_allclose(line.get_xydata(), means)
            assert len(axis.collections) == (2 if trials > 1 else 0)  # bands
            assert axis.get_xscale() == "log" and set(say(axis)) == {"CD", "S-DCP-D"}
    assert legend_of(figure) == ["CD", "S-DCP-D"]
    below = figures.describe_runs([run for runs in every for run in runs], PAPER)
    assert words_of(figure) == ["MNIST, 4 hidden units: other choices", *below]


def overfitted(algorithm, trials=3):
    """A run whose test likelihood is best at epoch 4, and that on validation at epoch 2, but for
    the start."""
    test = np.add.outer(np.arange(trials), EPOCHS) - 10
    run = make_run(algorithm, "caltech101_silhouettes", test)
    valid = run.curve.epoch.map({0: 0.0, 1: -8.0, 2: -6.0, 4: -7.0}) + run.curve.trial / 2
    return run._replace(curve=run.curve.assign(valid=valid))


@pytest.mark.parametrize("trials", [1, 3])
def test_overfitting(trials):
    """Where one would stop by the validation likelihood, and what that gives on test; a panel
    stays empty where all trials have diverged, and says so where there is no validation."""
    drawn = [overfitted(name, trials) for name in ("cd", "sdcp_d")]
    diverged, bare = overfitted("pcd", trials), overfitted("cg", trials)
    diverged = diverged._replace(curve=diverged.curve[diverged.curve.epoch <= 1])
    diverged.curve.loc[diverged.curve.epoch > 0, "status"] = "diverged"
    bare = bare._replace(curve=bare.curve.drop(columns="valid"))
    finished = [*drawn, diverged, bare]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.overfitting(finished, LONG)
    up = (trials - 1) / 2  # the mean over trials of their number
    for axis, run in zip(figure.axes, drawn, strict=False):
        train, valid, test, when, star = axis.lines
        assert points(train) == [(e, -9 + e + up) for e in (1, 2, 4)]
        assert points(test) == [(e, -10 + e + up) for e in (1, 2, 4)]
        assert valid.get_ydata().tolist() == [y + up / 2 for y in (-8, -6, -7)]
        assert set(when.get_xdata()) == {2}
        assert points(star) == [(2, -8 + up)] and star.get_color() == "red"
        colour = color_of(run.settings["algorithm"])
        assert {to_hex(line.get_color()) for line in (train, valid, test)} == {colour}
        assert axis.get_xscale() == "log" and "logarithmic" in axis.get_xlabel()
    assert not any(points(line) for line in figure.axes[2].lines)
    assert len(figure.axes[3].lines) == 2
    assert [say(axis) for axis in figure.axes] == [[], [], [], ["no validation likelihood"]]
    assert [axis.get_title() for axis in figure.axes] == ["CD", "S-DCP-D", "PCD", "CG"]
    star_label = "test at the best epoch on validation"
    assert legend_of(figure) == ["train", "validation", "test", star_label]
    for handle, line in zip(figure.legends[0].legend_handles, (train, valid, test), strict=False):
        assert handle.get_linestyle() == line.get_linestyle()
    title = "CalTech 101 Silhouettes, 4 hidden units: overfitting"
    assert words_of(figure) == [title, *figures.describe_runs(finished, LONG)]


def both_estimates(algorithm, missed, bound):
    """A run whose trusted log Z is so much above the plain one at each epoch but the start."""
    run = make_run(algorithm, "caltech101_silhouettes", trials=1)
    trusted = 5.0 + run.curve.epoch.map(missed)  # not made at the start
    return run._replace(curve=run.curve.assign(log_z=5.0, trusted_log_z=trusted, bound=5.0 + bound))


def test_refuted_over_epochs():
    """Filled where the bound says so, a panel a group, nothing where both were not made."""
    cd = both_estimates("cd", {1: 0.1, 2: 20.0, 4: 30.0}, bound=10.0)
    pcd = both_estimates("pcd", {1: 0.0, 2: 0.1, 4: 0.2}, bound=-1.0)
    groups = {"as_published": [cd, pcd], "tuned_speed": [pcd, make_run("sdcp", "mnist")]}
    figure = figures.refuted_over_epochs(groups, LONG)
    one, other = figure.axes
    assert one.get_title() == "hyperparameters as published"
    assert other.get_title() == "each algorithm tuned for speed"
    of_cd, filled, of_pcd, none = one.lines
    assert of_cd.get_xydata() == pytest.approx(np.array([[1, 0.1], [2, 20], [4, 30]]))
    assert of_pcd.get_ydata() == pytest.approx([0, 0.1, 0.2]) and not points(none)
    assert filled.get_xdata().tolist() == [1, 2, 4] and filled.get_linewidth() == 0
    assert [len(points(line)) for line in other.lines] == [3, 0, 0, 0]
    assert one.get_xlim()[1] > 4 and one.get_ylim()[1] > 30  # of all runs and panels
    only = figures.refuted_over_epochs({"as_published": [pcd], "tuned_speed": [cd]}, LONG)
    assert only.axes[0].get_ylim()[1] > 30
    (little,) = figures.refuted_over_epochs({"as_published": [pcd]}, LONG).axes
    assert little.get_ylim() == (-1.1, 1.1)
    assert legend_of(figure) == ["CD", "PCD", "S-DCP", "filled: refuted by the bound"]
    assert words_of(figure)[0] == "CalTech 101 Silhouettes, 4 hidden units: when plain AIS fails"
    less = make_run("cg", "caltech101_silhouettes")
    less = less._replace(settings=less.settings | {"epochs": LONG["epochs"] - 1})
    said = [figures.budget_note(run, LONG) for run in (cd, less)]
    words = "\n".join(words_of(figures.refuted_over_epochs({"as_published": [cd, less]}, LONG)))
    assert said[0] != said[1] and all(not note or f"Some runs: {note}" in words for note in said)


# ---------------------------------------------------------------------------- refuted points


def refuted_run():
    """Two trials with plain AIS but at the start, at the end of the first 20 nats too small;
    trusted everywhere."""
    test = [[-9, -8, -7, -6], [-9, -8, -7.5, -7]]
    run = make_run("sdcp_d", "caltech101_silhouettes", test)
    curve = run.curve.assign(log_z=100.0, bound=90.0, trusted_ess=50.0)
    curve = curve.assign(log_z_se=0.1, trusted_log_z_se=0.1)
    last, first = curve.epoch == 4, curve.epoch == 0
    curve.loc[last & (curve.trial == 0), "bound"] = 120.0
    curve["trusted_log_z"] = np.where(last, 123.0, 100.2)
    for part in ("train", "test"):
        curve[f"trusted_{part}"] = curve[part] - curve.trusted_log_z + 100
    curve.loc[first, ["train", "test", "log_z", "ess"]] = np.nan
    return run._replace(curve=curve)


def test_refuted_points_are_hollow_with_what_they_can_be_at_most():
    """Each trial what its own bound allows: the mean of these, and the largest."""
    run = refuted_run()
    plain, trusted = summarize(run), summarize(run, trusted=True)
    assert tuple(plain.epoch) == EPOCHS[1:] and list(plain.refuted_by) == [0, 0, 20]
    assert tuple(trusted.epoch) == EPOCHS and "refuted_by" not in trusted
    assert trusted.test_mean.iloc[-1] == pytest.approx(plain.test_mean.iloc[-1] - 23)
    figure = figures.likelihood_curves([run], PAPER)
    places = product(("train", "test"), (("mean", np.mean), ("max", np.max)))
    for axis, (part, (statistic, function)) in zip(figure.axes, places, strict=True):
        ends = run.curve[part].to_numpy()[-2:]
        (hollow,) = [line for line in axis.lines if line.get_label().endswith(", refuted")]
        assert points(hollow) == [(4, pytest.approx(function(ends)))]
        assert to_hex(hollow.get_markerfacecolor()) == "#ffffff"
        (at_most,) = [line for line in axis.lines if line.get_marker() == "_"]
        assert points(at_most) == [(4, pytest.approx(function(ends - [20, 0])))]
        (beside,) = [line for line in axis.lines if line.get_linestyle() == "-."]
        np.testing.assert_allclose(beside.get_ydata(), trusted[f"{part}_{statistic}"])
    assert {"trusted estimate", "refuted; at most –"} <= {*legend_of(figure)}
    figure = figures.likelihood_curves([make_run()], PAPER)  # no bound refutes it
    assert not [line for line in figure.axes[0].lines if line.get_marker() == "_"]
    assert "refuted" not in " ".join(words_of(figure) + legend_of(figure))


def test_of_several_refuted_runs_of_an_algorithm_the_worst_is_named():
    one = refuted_run()
    other = one._replace(curve=one.curve.assign(bound=one.curve.bound + 15))
    said = "Plain AIS is refuted, its log-likelihood too high: S-DCP-D at least 35 nats at epoch 4."
    for runs in ([one, other], [other, one]):
        assert figures.describe_runs(runs, PAPER)[-1] == said


# ------------------------------------------------------------------------------- images


def test_tile():
    """Five images of 2 × 3 in a square of nine, each with a gap around it."""
    images = np.arange(1, 1 + 5 * 6).reshape(5, 6)
    picture = figures.tile(images, (2, 3), gap=-1)
    assert picture.shape == (10, 13)
    for number, image in enumerate(images):
        top, left = 3 * (number // 3) + 1, 4 * (number % 3) + 1
        there = picture[top : top + 2, left : left + 3]
        assert there.ravel().tolist() == image.tolist()
        there[:] = -1
    assert (picture == -1).all()


def test_sample_grids_tell_what_is_not_there():
    """A model that has diverged, one that is not kept, and that there are fewer Gibbs steps."""
    names = ["cd", "pcd", "cg", "sdcp"]
    runs = [make_run(name) for name in names]
    runs[1].curve["status"] = "diverged"
    images = [random_bits(4, 9, seed=1), None, None, random_bits(4, 9, seed=2)]
    figure = figures.sample_grids(runs, images, (3, 3), PAPER, 5000)
    assert [axis.get_title() for axis in figure.axes] == [LABELS[name] for name in names]
    assert [say(axis) for axis in figure.axes] == [[], ["diverged"], ["model not kept"], []]
    for number in (0, 3):
        axis = figure.axes[number]
        np.testing.assert_array_equal(
            axis.images[0].get_array(), figures.tile(images[number], (3, 3))
        )
        assert axis.images[0].get_clim() == (0, 1)
    assert "4 images after 5,000 Gibbs steps" in words_of(figure)[0]
    assert "reduced" not in words_of(figure)[-1]
    figure = figures.sample_grids(runs, images, (3, 3), PAPER, 20)
    assert "after 20 Gibbs" in words_of(figure)[0]
    assert words_of(figure)[-1] == "Gibbs steps reduced (paper: 5,000)."


def pictures(points):
    rng = np.random.default_rng(4)
    return {
        "epoch": np.arange(points) * 10.0,
        "images": rng.integers(0, 2, (2, 9)),
        "filters": rng.normal(size=(points, 5, 9)).astype(np.float16),
        "reconstructions": rng.random((points, 2, 9)).astype(np.float16),
    }


def test_filters_while_a_model_learns():
    """On one scale, the last point always among them."""
    kept = pictures(30)
    *axes, bar = figures.filters(kept, (3, 3)).axes
    epochs = [float(axis.get_title().removeprefix("epoch ")) for axis in axes]
    assert len(epochs) == 6 and (epochs[0], epochs[-1]) == (0, 290)
    shown = kept["filters"][np.searchsorted(kept["epoch"], epochs)]
    for axis, W in zip(axes, shown, strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array()[1:4, 5:8], W[1].reshape(3, 3))
        assert axis.images[0].get_clim() == (-np.abs(shown).max(), np.abs(shown).max())
    assert bar.get_ylabel() == "weight"
    assert len(figures.filters(pictures(1), (3, 3)).axes) == 2


def test_reconstructions_are_below_their_images():
    kept = pictures(3)
    axes = figures.reconstructions(kept, (3, 3)).axes
    names = [axis.get_ylabel() for axis in axes]
    assert names == ["test image", "epoch 0", "epoch 10", "epoch 20"]
    for axis, images in zip(axes, [kept["images"], *kept["reconstructions"]], strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array()[1:4, 6:9], images[1].reshape(3, 3))
        assert axis.images[0].get_clim() == (0, 1)


@pytest.mark.parametrize("with_data", [True, False])
def test_hidden_modes_stand_beside_their_likelihoods(with_data):
    """CD: a bound of 30 nats more than plain AIS; PCD: one of 5 less."""
    rows = [("cd", -60.0, -100.0, 230.0), ("cd", -61.0, -99.0, 230.0), ("pcd", -70.0, -70.5, 195.0)]
    columns = ["algorithm", "test", "trusted_test", "bound"]
    table = pd.DataFrame(rows, columns=columns).assign(chains=50, from_images=1, from_noise=20)
    table["log_z"] = 140 - table.test
    table["trusted_log_z"] = 140 - table.trusted_test
    images = {n: random_bits(5, 6, seed=i, dtype=np.uint8) for i, n in enumerate(("cd", "pcd"))}
    real = random_bits(4, 6, seed=9, dtype=np.uint8) if with_data else None
    axis, pictures = figures.hidden_modes(table, images, real, (2, 3), "title", ["line"]).axes
    bars = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "|"]
    assert bars == [140 - 230, 140 - 195]
    (dotted,) = [line for line in axis.lines if line.get_linestyle() == ":"]
    assert points(dotted) == [(-90, 0), (-60, 0)]  # CD alone is refuted
    assert len(pictures.images) == 4 + with_data
    strip = pictures.images[1].get_array()
    np.testing.assert_array_equal(strip[1:3, 6:9], images["cd"][2].reshape(2, 3))
    said = "\n".join(say(pictures))
    assert "2 % from images\n40 % from noise" in said
    assert ("not at hand" in said) != with_data
    assert axis.get_ylim() == pictures.get_ylim()


# -------------------------------------------------------------------------------- files


def test_settings_of_the_user_do_not_matter(tmp_path):
    """Wherever they lie, and whatever is wrong with them."""
    for folder in ("cwd", "named", "config", "home/.config/matplotlib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "matplotlibrc").write_bytes(b"text.usetex: True # gr\xf6\xdfer\n")
    places = {"HOME": "home", "MATPLOTLIBRC": "named", "MPLCONFIGDIR": "config"}
    places = {name: str(tmp_path / folder) for name, folder in places.items()}
    env = os.environ | places | {"MPLBACKEND": "nonsense", "PYTHONPATH": str(ROOT / "src")}
    told = "mpl.rcParams['text.usetex'], mpl.get_backend()"
    code = f"from sdcpd.figures.style import mpl; print({told})"
    how = {"env": env, "cwd": tmp_path / "cwd", "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], **how)
    assert (done.stdout, done.stderr) == ("False agg\n", "")


def test_saved_figures_are_the_same_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setitem(plt.rcParams, "savefig.dpi", 50)  # fast
    stems = [tmp_path / "new" / name for name in ("one", "two")]
    for stem in stems:
        figure, axis = plt.subplots(figsize=(2, 1))
        axis.plot([1, 2], label="a label")
        axis.legend()
        figures.save(figure, stem)
    for suffix, head in {"pdf": b"%PDF-", "png": b"\x89PNG", "svg": b"<?xml"}.items():
        one, two = (stem.with_suffix(f".{suffix}").read_bytes() for stem in stems)
        assert one.startswith(head) and len(one) > 2000
        assert one == two, suffix
    assert b"D:19700101" in stems[0].with_suffix(".pdf").read_bytes()
    assert ">a label<" in stems[0].with_suffix(".svg").read_text()  # text stays text


def test_saved_table(tmp_path):
    """In LaTeX a bare & in a caption is an error, a bare % swallows the closing brace."""
    cells = {"dataset": ["Bars & Stripes", "5 %"], "mean (s)": ["1.41 ± 0.1", "2"]}
    table, caption = pd.DataFrame(cells), "Bars & Stripes: 5 % of 10_000."
    stem = tmp_path / "new" / "table_1"
    shown = figures.save_table(table, stem, caption)
    pd.testing.assert_frame_equal(shown.data, table)
    pd.testing.assert_frame_equal(pd.read_csv(stem.with_suffix(".csv"), dtype=str), table)
    markdown = stem.with_suffix(".md").read_text().splitlines()
    assert markdown[:2] == [caption, ""]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in markdown[2:]]
    assert rows[0] == list(table.columns) and rows[2:] == table.to_numpy().tolist()
    latex = stem.with_suffix(".tex").read_text()
    assert r"\caption{Bars \& Stripes: 5 \% of 10\_000.}" in latex
    assert r"\label{tab:table_1}" in latex
    assert r"Bars \& Stripes & 1.41 $\pm$ 0.1 \\" in latex and r"5 \% & 2 \\" in latex


def test_timing_tables():
    """Ratios are geometric means over trials; the interval is on the logarithm."""
    seconds = {"cd": [1.0, 4.0], "cg": [2.0, 8.0], "sdcp": [2.0, 2.0], "sdcp_d": [4000.0, 4000.0]}
    counted = {name: {"products": 10 * n} for n, name in enumerate(seconds, 1)}
    record = {"seconds": {"A": seconds}, "operations": {"A": counted}}
    paper = {("A", LABELS[name]): (1.5 * n, 0.1) for n, name in enumerate(seconds, 1)}
    paper = pd.DataFrame(paper, index=["mean", "sigma"]).T
    table = figures.timing_table(record, paper, record).set_index("algorithm")
    assert table["mean (s)"].tolist() == ["2.5", "5", "2", "4,000"]
    assert table["σ (s)"].tolist() == ["2.12", "4.24", "0", "0"]
    assert table["ratio to CD"]["CG"] == "2.000 [2.000, 2.000]"
    assert table["ratio to CD"]["S-DCP"].startswith("1.000 [0.000, ")
    assert table["products"].tolist() == ["10", "20", "30", "40"]
    assert table["paper ratio to CD"].tolist() == ["1.000", "2.000", "3.000", "4.000"]
    assert (table["archived: mean (s)"] == table["mean (s)"]).all()
    table = figures.cost_table(record, paper).set_index("comparison")
    assert table.ours["S-DCP-D over S-DCP"] == "2000.000 [2000.000, 2000.000]"
    assert table.paper.tolist() == ["3.000", "1.500", "1.333"] == table.products.tolist()
    record["seconds"]["A"] = {name: values[:1] for name, values in seconds.items()}
    assert figures.cost_table(record, paper).ours.tolist() == ["2.000", "1.000", "2000.000"]


# ------------------------------------------------------------------- tuning and sensitivity


def grid():
    """Two algorithms with two settings each, S-DCP-D with one."""
    rows = [("cd", 0.1, -5.0), ("cd", 0.2, -4.0), ("cg", 0.1, -3.5), ("cg", 0.2, -3.0)]
    rows.append(("sdcp_d", 0.1, -2.0))
    table = pd.DataFrame(rows, columns=["algorithm", "learning_rate", "area"])
    epsilon = np.where(table.algorithm == "sdcp_d", 0.3, np.nan)
    alike = {"trials": 4, "diverged": 0, "dropped": 0, "doubts": ""}
    return table.assign(final=table.area + 0.5, epsilon=epsilon, **alike)


def outlined(axis):
    """The cells (row, column) in a frame."""
    frames = [patch for patch in axis.patches if patch.get_edgecolor()[:3] == (1, 0, 0)]
    return {(round(f.get_y() + 0.5), round(f.get_x() + 0.5)) for f in frames}


def cells(axis):
    """(row, column) -> what stands in the cell."""
    places = [text.get_position()[::-1] for text in axis.texts]
    return dict(zip(places, say(axis), strict=True))


def crossed(axis):
    return {(int(y), int(x)) for line in axis.lines for x, y in line.get_xydata()}


@pytest.mark.parametrize(
    ("changes", "best_of_cg"),
    [({}, 1), ({"diverged": 1}, 0), ({"dropped": 1}, 0), ({"doubts": "why"}, 0)],
)
def test_tuning_map_shows_every_setting_and_outlines_the_best(changes, best_of_cg):
    """Crossed out is what diverged; not the best is what was dropped or is doubtful, either."""
    table = grid()
    table.loc[3, list(changes)] = list(changes.values())
    speed, scaled, end, _ = figures.tuning_map(table, "MNIST", ["seed 1"]).axes[:4]
    assert cells(speed) == {(0, 0): "-5.00", (0, 1): "-4.00", (1, 0): "-3.50", (1, 1): "-3.00"}
    assert cells(end) == {(0, 0): "-4.50", (0, 1): "-3.50", (1, 0): "-3.00", (1, 1): "-2.50"}
    assert say(scaled) == ["-2.00"]
    assert outlined(speed) == {(0, 1), (1, best_of_cg)} and outlined(scaled) == {(0, 0)}
    assert crossed(speed) == ({(1, 1)} if "diverged" in changes else set())
    assert [label.get_text() for label in speed.get_yticklabels()] == ["CD", "CG"]


def test_tuning_map_of_an_algorithm_that_has_no_trial_left():
    table = grid()
    table.loc[[2, 3], ["diverged", "area", "final"]] = 4, np.nan, np.nan
    speed = figures.tuning_map(table, "MNIST", []).axes[0]
    assert cells(speed) == {(0, 0): "-5.00", (0, 1): "-4.00"}
    assert crossed(speed) == {(1, 0), (1, 1)} and outlined(speed) == {(0, 1)}


def test_sensitivity_map_is_over_epsilon_and_memory():
    rows = [(e, m, -3 - e - m, 2 * (e < 0.05)) for e in (0.01, 0.1) for m in (0.0, 0.9)]
    table = pd.DataFrame(rows, columns=["epsilon", "lambda_hessian", "final", "diverged"])
    table = table.assign(area=table.final - 1, learning_rate=0.07, trials=4)
    sweeps = {"as_published": [make_run("sdcp_d")]}
    final, area, share = figures.sensitivity_map(sweeps, {"as_published": table}).axes[:3]
    where = [(0, 0), (1, 0), (0, 1), (1, 1)]  # λ_H upwards, ε to the right
    assert cells(final) == dict(zip(where, ["-3.01", "-3.91", "-3.10", "-4.00"], strict=True))
    assert cells(area) == dict(zip(where, ["-4.01", "-4.91", "-4.10", "-5.00"], strict=True))
    assert cells(share) == dict(zip(where, ["50%", "50%", "0%", "0%"], strict=True))
    assert crossed(final) == {(0, 0), (1, 0)}
    assert "0.07" in final.get_ylabel() and "as published" in final.get_ylabel()


# ------------------------------------------------------------------------------- claims

CLAIM = {"id": 5, "claim": "faster", "measure": "epochs_saved", "holds_if": {"above": 0.25}}


def measured(**columns):
    """Three measurements of one claim as published, against CD, CG and S-DCP."""
    alike = {"id": "5", "measure": "epochs_saved", "experiment": "mnist", "n_hidden": 500}
    alike |= {"part": "test", "detail": "1 nat below", "one": "sdcp_d", "setting": "as published"}
    rows = [
        ("cd", 0.4, 0.5, 0.4, 0.6, "holds"),
        ("cg", 0.3, 0.1, -np.inf, 0.2, "fails"),
        ("sdcp", np.nan, 0.3, 0.2, 0.4, "undecided"),
    ]
    table = pd.DataFrame(rows, columns=["other", "paper", "ours", "low", "high", "outcome"])
    return table.assign(**alike | {"trials": 4, "doubts": "", "note": ""} | columns)


def verdict_of(table):
    verdicts = pd.DataFrame({"id": ["5"], "experiment": "mnist", "n_hidden": 500, "verdict": "no"})
    return figures.verdict_table(verdicts, table, [CLAIM]).iloc[0]


def test_verdict_shows_what_speaks_most_against_the_claim():
    row = verdict_of(measured())
    assert row["as published"] == "10 % [never, 20 %] vs CG, 1 nat below"
    assert row.paper == "30 % vs CG, 1 nat below"
    assert row.dataset == "MNIST" and row["holds if"] == "above 25 %" and row.tuned == ""
    nothing = {"ours": np.nan, "low": np.nan, "high": np.nan, "trials": 0}
    row = verdict_of(measured(**nothing, outcome="not run", note="run with 1 trial only"))
    assert row["as published"] == "run with 1 trial only"
    row = verdict_of(measured(doubts="log Z doubtful"))
    assert row["as published"] == "10 % [never, 20 %] vs CG, 1 nat below; log Z doubtful"


def test_measurements_one_a_row_with_their_intervals():
    table = figures.measurement_table(measured(), [CLAIM])
    others = "CD", "CG", "S-DCP"
    assert list(table["of"]) == [f"vs {other}, 1 nat below, test" for other in others]
    assert list(table["paper"]) == ["40 %", "30 %", ""]
    assert list(table["ours [95 % interval]"])[1] == "10 % [never, 20 %]"
    assert list(table.outcome) == ["holds", "fails", "undecided"] and set(table.trials) == {"4"}
    counted = measured(measure="range_over_epsilon", ours=np.inf, low=np.inf, high=np.inf)
    counted = counted.assign(trials=np.inf, note="two diverged", doubts="log Z doubtful")
    table = figures.measurement_table(counted, [CLAIM])
    assert set(table["ours [95 % interval]"]) == {"diverges"} and set(table.trials) == {"exact"}
    assert set(table.note) == {"two diverged; log Z doubtful"}
