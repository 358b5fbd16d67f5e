"""Plots and tables: what they show is what the runs and the published files say."""

import os
import subprocess
import sys
import warnings
from textwrap import wrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from conftest import random_bits
from matplotlib.colors import to_hex

from sdcpd import ROOT, data, figures
from sdcpd.algorithms import ALGORITHMS, LABELS
from sdcpd.figures import curves
from sdcpd.figures.style import headline
from sdcpd.rbm import Parameters
from sdcpd.runs import Run
from sdcpd.study.compare import summarize

REFERENCE = ROOT / "workflow/reference"
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


ENDS = 0, 1000, 2500


def make_run(algorithm="cd", dataset="bars_and_stripes", curve=None, **changes):
    """A run of three trials whose curve is random, or made of rows trial, update, train, status."""
    rng = np.random.default_rng(list(ALGORITHMS).index(algorithm))
    if curve is None:
        curve = [(t, u, rng.uniform(-9, -5), "ok") for u in EPOCHS for t in range(3)]
    curve = pd.DataFrame(curve, columns=["trial", "update", "train", "status"])
    curve = curve.assign(epoch=1.0 * curve["update"], test=curve.train - 1, ess=50.0)
    settings = {"dataset": dataset, "algorithm": algorithm, "n_hidden": 4, "trials": 3}
    settings |= {"epochs": 4, "ais": AIS, "hyperparameters": {"learning_rate": 0.1}} | changes
    theta = Parameters(rng.normal(size=(3, 4, 9)), np.zeros((3, 9)), np.zeros((3, 4)))
    about = {"device": "CPU test"}, {"finished": "2026-01-02T03:04:05+00:00"}
    return Run(settings, about[0], curve, theta, about[1], (0, 1, 2))


def diverging_run():
    """One trial diverges at update 2, another at update 4."""
    return make_run(
        curve=[
            *[(0, 0, -6.0, "ok"), (1, 0, -6.5, "ok"), (2, 0, -7.0, "ok")],
            *[(0, 2, -4.0, "ok"), (1, 2, -6.0, "ok"), (2, 2, -99.0, "diverged")],
            *[(0, 4, -3.0, "ok"), (1, 4, np.nan, "diverged")],
        ]
    )


def say(axis):
    return [text.get_text() for text in axis.texts]


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
    table = summarize(run).set_index("update")
    assert table.index.tolist() == table.epoch.tolist() == [0, 2, 4]
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
    # the same of validation images, where there are any
    assert not any(name.startswith("valid") for name in table)
    run.curve["valid"] = run.curve.train - 2
    table = summarize(run)
    for name in ("mean", "max", "low", "high"):
        np.testing.assert_allclose(table[f"valid_{name}"], table[f"train_{name}"] - 2)


def test_published_names():
    rate = figures.published(
        REFERENCE / "published_curves_2017.csv", dataset="MNIST", learning_rate=0.05
    )
    assert len(rate) == 4 * 21
    assert rate.algorithm.value_counts().to_dict() == dict.fromkeys(("cd", "pcd", "cg", "sdcp"), 21)
    assert set(rate.dataset) == {"MNIST"} and set(rate.learning_rate) == {0.05}
    raw = pd.read_csv(REFERENCE / "published_curves_2017.csv")
    assert "CS-DCP" in set(raw.algorithm)  # and is none of ours
    one = raw.query("dataset == 'MNIST' and learning_rate == 0.05 and algorithm == 'S-DCP'")
    assert rate[rate.algorithm == "sdcp"].avg_loglik.tolist() == one.avg_loglik.tolist()


def test_published_curves_of_2019():
    path = REFERENCE / "published_curves_2019.csv"
    table = figures.published(path)
    assert len(table) == len(pd.read_csv(path)) == 610
    assert table.figure.value_counts().to_dict() == {1: 90, 2: 160, 3: 180, 4: 180}
    assert set(table.algorithm) == set(ALGORITHMS)
    assert table.groupby("figure").epoch.max().tolist() == [5000, 200, 200, 200]
    # A maximum over trials is no less than their mean.
    table["statistic"] = table.panel.str.split("-").str[-1]
    table["part"] = table.panel.str.split("-").str[0]
    places = ["figure", "part", "algorithm", "epoch"]
    both = table.pivot(index=places, columns="statistic", values="avg_loglik")
    assert len(both) == 305 and (both["max"] >= both["mean"]).all()
    # No distribution has a higher average log-likelihood than the 16 patterns themselves.
    assert (table[table.figure == 1].avg_loglik < -15 / 4 * np.log(2)).all()


def test_published_table_1():
    table = pd.read_csv(REFERENCE / "table1.csv").set_index(["dataset", "algorithm"])
    large, small = (table.loc[name] for name in ("Large datasets", "Bars & Stripes"))
    for part in (large, small):
        assert part.index.tolist() == list(LABELS.values())
    assert large["mean"].tolist() == [248.15, 248.15, 309.51, 317.87, 385.65]
    assert small["mean"].tolist() == [1.41, 1.41, 1.79, 1.73, 1.92]
    assert large["mean"]["S-DCP-D"] / large["mean"]["S-DCP"] == pytest.approx(1.213, abs=5e-4)
    assert large["mean"]["S-DCP"] / large["mean"]["CD"] == pytest.approx(1.281, abs=5e-4)
    assert small["mean"]["S-DCP-D"] / small["mean"]["S-DCP"] == pytest.approx(1.110, abs=5e-4)
    assert (table.sigma < 0.05 * table["mean"]).all() and (table.sigma > 0).all()


# ------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, ""),
        ({"trials": 4, "epochs": 9, "ais": {name: 2 * n for name, n in AIS.items()}}, ""),
        ({"ais": None}, ""),  # exact
        ({"trials": 2}, "2 trials (paper: 3)"),
        ({"trials": 1}, "1 trial (paper: 3)"),
        ({"epochs": 0.5}, "0.5 epochs (paper: 4)"),
        ({"ais": AIS | {"n_temperatures": 2000}}, "AIS with 2,000 temperatures (paper: 10,000)"),
        ({"ais": AIS | {"n_particles": 50}}, "50 AIS particles (paper: 100)"),
        ({"trials": 2, "epochs": 3}, "2 trials (paper: 3); 3 epochs (paper: 4)"),
    ],
)
def test_budget_note(changes, note):
    note = note and f"Reduced budget: {note}."
    assert figures.budget_note(make_run(**changes), PAPER) == note


def test_budget_note_of_an_exact_experiment():
    note = figures.budget_note(make_run(ais=None), PAPER | {"ais": None, "epochs": 5000})
    assert note == "Reduced budget: 4 epochs (paper: 5,000)."


def test_describe_runs():
    assert figures.describe_runs([make_run(), make_run("pcd")], PAPER) == ["CPU test, 2026-01-02"]
    lines = figures.describe_runs([make_run("pcd"), diverging_run()], LONG)
    assert lines[1:] == ["Reduced budget: 4 epochs (paper: 200).", "2 diverged trials left out."]
    other = make_run("cg", curve=[(0, 0, -1.0, "ok"), (0, 2, np.nan, "diverged")])
    other.provenance["device"], other.wall["finished"] = "GPU test", "2026-01-05T00:00:00"
    assert figures.describe_runs([other, make_run()], PAPER) == [
        "CPU test and GPU test, 2026-01-02 to 2026-01-05",
        "1 diverged trial left out.",
    ]
    low = make_run("sdcp")
    low.curve["ess"] = np.where(low.curve.trial.eq(1) & low.curve["update"].eq(2), 9.9, 10.0)
    assert figures.describe_runs([low, make_run()], PAPER)[1:] == [
        "Plain AIS at times has an effective sample size below 10: S-DCP."
    ]


def test_different_budgets_in_one_figure_are_each_stated():
    shorter = [make_run("cd"), *(make_run(name, epochs=2) for name in ("cg", "sdcp"))]
    for runs, whose in ((shorter, "CG, S-DCP: "), (shorter[1:], "")):
        (_, note) = figures.describe_runs(runs, PAPER)
        assert note == f"{whose}Reduced budget: 2 epochs (paper: 4)."


def test_archived_runs_are_called_so():
    here, kept = make_run(), make_run("cg")._replace(archived=True)
    assert figures.origin_line([kept]) == "archived runs: CPU test, 2026-01-02"
    both = figures.origin_line([kept, here])
    assert both == "CPU test, 2026-01-02; archived runs: CPU test, 2026-01-02"


def test_data_in_words():
    titles = [entry["title"] for entry in data.catalogue.catalogue()["datasets"].values()]
    assert len({*titles, "own.npz"}) == len(titles) + 1 and data.title_of("a/own.npz") == "own.npz"
    choice = figures.choice({"dataset": "mnist_fresh", "batch_size": 200, "n_hidden": 500})
    assert choice == "MNIST, binarized anew at every visit, batch 200"
    assert figures.model_of(make_run(dataset="mnist")) == "MNIST, 4 hidden units"


# ------------------------------------------------------------------------------ figures


def test_an_algorithm_has_its_own_colour_and_marker():
    assert set(figures.STYLES) == set(LABELS) == set(ALGORITHMS)
    colours, markers = zip(*figures.STYLES.values(), strict=True)
    assert len({to_hex(colour) for colour in colours}) == len(set(markers)) == len(ALGORITHMS)


@pytest.mark.parametrize(
    ("dataset", "parts"), [("bars_and_stripes", ["test"]), ("mnist", ["train", "test"])]
)
def test_likelihood_curves(dataset, parts):
    finished = [make_run(name, dataset) for name in ALGORITHMS]
    panels = [(part, statistic) for part in parts for statistic in ("mean", "max")]
    prefix = {"bars_and_stripes": "train=test"}  # as the published file calls it
    published = pd.DataFrame(
        [
            (epoch, name, f"{prefix.get(dataset, part)}-{statistic}", -10 * place - epoch)
            for place, (part, statistic) in enumerate(panels)
            for name in ("cd", "sdcp_d")
            for epoch in (2, 4)
        ],
        columns=["epoch", "algorithm", "panel", "avg_loglik"],
    )
    figure = figures.likelihood_curves(finished, PAPER, published)
    assert len(figure.axes) == len(panels) == 2 * len(parts)
    for place, (axis, (part, statistic)) in enumerate(zip(figure.axes, panels, strict=True)):
        title = axis.get_title()
        assert title.startswith("train = test" if len(parts) == 1 else part)
        assert {"mean": "mean", "max": "maximum"}[statistic] in title
        for run in finished:
            line = line_of(axis, run.settings["algorithm"])
            values = run.curve.groupby("epoch")[part].agg(statistic)
            np.testing.assert_allclose(line.get_xydata(), values.reset_index().to_numpy())
            colour, marker = figures.STYLES[run.settings["algorithm"]]
            assert (to_hex(line.get_color()), line.get_marker()) == (to_hex(colour), marker)
            assert line.get_linestyle() == "-"
        assert set(dashed(axis)) == {to_hex(figures.STYLES[n][0]) for n in ("cd", "sdcp_d")}
        for line in dashed(axis).values():
            expected = [(epoch, -10 * place - epoch) for epoch in (2, 4)]
            assert [tuple(point) for point in line.get_xydata()] == expected
        assert len(axis.collections) == (5 if statistic == "mean" else 0)  # bands
        assert axis.get_xscale() == "linear"
    assert legend_of(figure) == [*LABELS.values(), "published (dashed)"]
    assert data.title_of(dataset) in words_of(figure)[0]


def test_band_is_the_interval_of_the_mean_of_trials_that_have_not_diverged():
    figure = figures.likelihood_curves([diverging_run()], PAPER)
    assert line_of(figure.axes[0], "cd").get_ydata().tolist() == [-7.5, -6, -4]
    assert "2 diverged trials left out." in words_of(figure)
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
    published = figures.published(REFERENCE / "published_curves_2019.csv", figure=1)
    figure = figures.likelihood_curves(
        [make_run()], LONG if shorter else PAPER, published if with_published else None
    )
    logarithmic = shorter and with_published
    for axis in figure.axes:
        assert axis.get_xscale() == ("log" if logarithmic else "linear")
        assert ("logarithmic" in axis.get_xlabel()) == logarithmic
        epochs = [epoch for epoch in EPOCHS if epoch > 0 or not logarithmic]
        assert line_of(axis, "cd").get_xdata().tolist() == epochs
        assert len(dashed(axis)) == (5 if with_published else 0)
    assert ("Reduced budget" in " ".join(words_of(figure))) == shorter


def test_words_do_not_cover_the_axes(monkeypatch):
    """Above the axes the title and its lines, below them the legend."""
    monkeypatch.setattr(plt.Figure, "tight_layout", TIGHT_LAYOUT)
    low = diverging_run()
    low.curve["ess"] = 1
    published = figures.published(REFERENCE / "published_curves_2019.csv", figure=1)
    figure = figures.likelihood_curves([low], PAPER | {"trials": 25}, published)
    figure.draw_without_rendering()
    boxes = [axis.get_tightbbox() for axis in figure.axes]
    title, lines = (text.get_window_extent() for text in figure.texts)
    assert len(words_of(figure)) == 1 + 4
    assert title.y0 > lines.y1 and lines.y0 > max(box.y1 for box in boxes)
    legend = figure.legends[0].get_window_extent()
    assert legend.y1 < min(box.y0 for box in boxes)
    assert legend.x0 >= 0 and legend.x1 <= figure.bbox.x1 and title.y1 <= figure.bbox.y1


@pytest.mark.parametrize("ais", [None, AIS])
def test_known_rates(ais):
    """A panel a rate, and the published curves no further than ours go."""
    published = figures.published(REFERENCE / "published_curves_2017.csv", dataset="BarsStripes")
    finished = [
        make_run(
            *(name, "bars_and_stripes", [(t, u, -5 - rate, "ok") for u in ENDS for t in range(3)]),
            **{"hyperparameters": {"learning_rate": rate}, "ais": ais},
            **{"n_gibbs_steps": k, "n_inner_iterations": d},
        )
        for rate in (0.2, 0.1)
        for name, k, d in (("cd", 12, 1), ("sdcp", 4, 3))
    ]
    figure = figures.known_rates(finished, PAPER, published)
    assert "K = 12, d = 3, K′ = 4, mean over 3 trials" in words_of(figure)[0]
    assert len(figure.axes) == 2
    panels = zip(figure.axes, (0.1, 0.2), (finished[2:], finished[:2]), strict=True)
    for axis, rate, group in panels:
        assert f"{rate:g}" in axis.get_title()
        for run in group:
            name = run.settings["algorithm"]
            means = run.curve.groupby("epoch").test.mean()
            means = means if ais is None else means[1:]  # estimated curves begin after the start
            np.testing.assert_allclose(line_of(axis, name).get_ydata(), means)
            rows = published[published.learning_rate.eq(rate) & published.algorithm.eq(name)]
            rows = rows[rows.epoch <= ENDS[-1]]
            line = dashed(axis)[to_hex(figures.STYLES[name][0])]
            assert line.get_ydata().tolist() == rows.avg_loglik.tolist() and len(rows) == 5
        assert len(dashed(axis)) == 2


def test_trial_curves():
    run = make_run(dataset="mnist")
    figure = figures.trial_curves(run)
    assert len(figure.axes) == 2
    for axis, part in zip(figure.axes, ("train", "test"), strict=True):
        *trials, mean = axis.lines
        for trial, line in enumerate(trials):
            assert line.get_ydata().tolist() == run.curve[run.curve.trial == trial][part].tolist()
        np.testing.assert_allclose(mean.get_ydata(), run.curve.groupby("epoch")[part].mean())


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
    titles = [axis.get_title() for axis in axes]
    assert len(axes) == 6 and titles[0] == "epoch 0" and titles[-1] == "epoch 290"
    shown = kept["filters"][[round(float(title.split()[1]) / 10) for title in titles]]
    for axis, W in zip(axes, shown, strict=True):
        (image,) = axis.images
        np.testing.assert_array_equal(image.get_array()[1:4, 5:8], W[1].reshape(3, 3))
        assert image.get_clim() == (-np.abs(shown).max(), np.abs(shown).max())
    assert bar.get_ylabel() == "weight"
    assert len(figures.filters(pictures(1), (3, 3)).axes) == 2


def test_reconstructions_are_below_their_images():
    kept = pictures(3)
    axes = figures.reconstructions(kept, (3, 3)).axes
    names = [axis.get_ylabel() for axis in axes]
    assert names == ["test image", "epoch 0", "epoch 10", "epoch 20"]
    for axis, images in zip(axes, [kept["images"], *kept["reconstructions"]], strict=True):
        (drawn,) = axis.images
        np.testing.assert_array_equal(drawn.get_array()[1:4, 6:9], images[1].reshape(3, 3))
        assert drawn.get_clim() == (0, 1)


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
    figure = figures.hidden_modes(table, images, real, (2, 3), "title", ["line"])
    axis, pictures = figure.axes
    at_most = [drawn.get_xdata()[0] for drawn in axis.lines if drawn.get_marker() == "|"]
    assert at_most == [140 - 230, 140 - 195]
    dotted = [(list(d.get_xdata()), list(d.get_ydata())) for d in axis.lines if d.get_ls() == ":"]
    assert dotted == [([-90, -60], [0, 0])]  # CD alone is refuted
    assert len(pictures.images) == 4 + with_data
    strip = pictures.images[1].get_array()
    np.testing.assert_array_equal(strip[1:3, 6:9], images["cd"][2].reshape(2, 3))
    said = "\n".join(text.get_text() for text in pictures.texts)
    assert "2 % from images\n40 % from noise" in said
    assert ("not at hand" in said) != with_data
    assert axis.get_ylim() == pictures.get_ylim()
    figures.plt.close(figure)


@pytest.mark.parametrize("heights", [[0.1, 0.11, 0.12], [0.97, 0.98, 0.99], [-0.2, 0.5, 0.52]])
def test_names_beside_curves_keep_apart(heights):
    places = curves._move_apart(heights, 0.1)
    assert (np.diff(places) >= 0.1 - 1e-9).all() and max(places) <= 1
    assert np.abs(np.subtract(places, heights)).max() < 0.25


def test_step_matched_baselines_are_dotted_and_named():
    baseline = make_run("cg", hyperparameters={"learning_rate": 0.6857})
    runs = [make_run(name) for name in ALGORITHMS]
    figure = figures.likelihood_curves(runs, PAPER, None, [baseline], "tuned_speed")
    (line,) = [ln for ln in figure.axes[0].lines if "step-matched" in str(ln.get_label())]
    assert line.get_linestyle() == ":" and "0.686" in line.get_label()
    assert "tuned for speed" in words_of(figure)[0] and line.get_label() in legend_of(figure)


def test_every_curve_is_named_where_it_ends():
    runs = [make_run(name) for name in ("cd", "sdcp_d")]
    for axis in figures.likelihood_curves(runs, PAPER).axes:
        named = {text.get_text(): text.xy for text in axis.texts}
        assert set(named) == {"CD", "S-DCP-D"}
        for line in axis.lines[::2]:
            assert named[line.get_label()] == (line.get_xdata()[-1], line.get_ydata()[-1])


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


def variants(trials=3, **changes):
    """The same two algorithms on two datasets, and with another batch; the curves differ by ¼."""
    every = []
    for number, (dataset, size) in enumerate(
        (("mnist", 200), ("mnist_fresh", 200), ("mnist", 100))
    ):
        curve = [(t, u, -9.0 + u - t - number / 4, "ok") for u in EPOCHS for t in range(trials)]
        changes |= {"trials": trials, "batch_size": size}
        every.append([make_run(name, dataset, curve, **changes) for name in ("cd", "sdcp_d")])
        every[-1][1].curve[["train", "test"]] += 1
    return every


def test_ablation_curves():
    """A column for each choice, train above test, on the same axes; epoch 0 has no place on a
    logarithmic one."""
    every = variants()
    figure = figures.ablation_curves(every, PAPER)
    axes = np.reshape(figure.axes, (2, 3))
    titles = ["MNIST\nbatch 200", "MNIST\nbinarized anew at every visit, batch 200"]
    assert [axis.get_title() for axis in axes[0]] == [*titles, "MNIST\nbatch 100"]
    for part, row in zip(("train", "test"), axes, strict=True):
        assert row[0].get_ylabel() == f"{part}\naverage log-likelihood (nats)"
        assert len({axis.get_ylim() for axis in row}) == 1
        for axis, of_choice in zip(row, every, strict=True):
            for run in of_choice:
                means = run.curve.groupby("epoch")[part].mean()[1:].reset_index()
                line = line_of(axis, run.settings["algorithm"])
                np.testing.assert_allclose(line.get_xydata(), means)
            assert axis.get_xscale() == "log" and len(axis.collections) == 2  # bands
            assert say(axis) == ["CD", "S-DCP-D"]
    assert all("logarithmic" in axis.get_xlabel() for axis in axes[1])
    assert legend_of(figure) == ["CD", "S-DCP-D"]
    assert words_of(figure) == ["MNIST, 4 hidden units: other choices", "CPU test, 2026-01-02"]


def test_ablation_curves_of_one_trial_say_so():
    """No band of nothing, and no warning in the notebook; what has diverged is counted."""
    every = variants(trials=1, epochs=2)
    every[2][1].curve.loc[lambda curve: curve.epoch == 4, "status"] = "diverged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.ablation_curves(every, PAPER)
    assert not any(axis.collections for axis in figure.axes)
    assert words_of(figure)[2:] == [
        "Reduced budget: 1 trial (paper: 3); 2 epochs (paper: 4).",
        "1 diverged trial left out.",
    ]
    assert line_of(figure.axes[2], "sdcp_d").get_xdata().tolist() == [1, 2]
    assert line_of(figure.axes[2], "cd").get_xdata().tolist() == [1, 2, 4]


def overfitted(algorithm="cd", trials=3, **changes):
    """A run whose test likelihood is best at epoch 4, and that on validation at epoch 2, but for
    the start."""
    curve = [(t, u, -9.0 + u + t, "ok") for u in EPOCHS for t in range(trials)]
    run = make_run(algorithm, "caltech101_silhouettes", curve, trials=trials, **changes)
    valid = run.curve.epoch.map({0: 0.0, 1: -8.0, 2: -6.0, 4: -7.0}) + run.curve.trial / 2
    return run._replace(curve=run.curve.assign(valid=valid))


@pytest.mark.parametrize("trials", [1, 3])
def test_overfitting(trials):
    """Where one would stop by the validation likelihood, and what that gives on test."""
    finished = [overfitted(name, trials) for name in ("cd", "sdcp_d")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.overfitting(finished, LONG)
    assert [axis.get_title() for axis in figure.axes] == ["CD", "S-DCP-D"]
    up = (trials - 1) / 2
    for axis, run in zip(figure.axes, finished, strict=True):
        train, valid, test, when, star = axis.lines
        assert train.get_xydata().tolist() == [[e, -9 + e + up] for e in (1, 2, 4)]
        assert test.get_xydata().tolist() == [[e, -10 + e + up] for e in (1, 2, 4)]
        assert valid.get_ydata().tolist() == [y + up / 2 for y in (-8, -6, -7)]
        assert set(when.get_xdata()) == {2}
        assert star.get_xydata().tolist() == [[2, -8 + up]] and star.get_color() == "red"
        colour, _ = figures.STYLES[run.settings["algorithm"]]
        assert {to_hex(line.get_color()) for line in (train, valid, test)} == {to_hex(colour)}
        assert axis.get_xscale() == "log" and "logarithmic" in axis.get_xlabel()
    assert legend_of(figure)[:3] == ["train", "validation", "test"]
    assert legend_of(figure)[3:] == ["test at the best epoch on validation"]
    drawn = [line.get_linestyle() for line in figure.axes[0].lines[:3]]
    handles = figure.legends[0].legend_handles[:3]
    assert [handle.get_linestyle() for handle in handles] == drawn
    assert figure.axes[0].get_ylabel() == "average log-likelihood (nats)"
    less = "1 trial (paper: 3); " if trials == 1 else ""
    assert words_of(figure) == [
        "CalTech 101 Silhouettes, 4 hidden units: overfitting",
        "CPU test, 2026-01-02",
        f"Reduced budget: {less}4 epochs (paper: 200).",
    ]


def test_long_lines_below_a_title_are_no_wider_than_the_figure():
    figure, _ = figures.plt.subplots(figsize=(4, 3))
    headline(figure, "Title", ["word " * 40, "short"])
    extent = figure.texts[1].get_window_extent(figure.canvas.get_renderer())
    assert extent.width < figure.bbox.width and words_of(figure)[-1] == "short"
    assert words_of(figure)[1:-1] == wrap("word " * 40, 60)


def both_estimates(algorithm, missed, bound):
    """A run whose trusted log Z is so much above the plain one at each epoch but the start."""
    run = make_run(algorithm, "caltech101_silhouettes", trials=1)
    epochs = run.curve.epoch
    trusted = (5.0 + epochs.map({0: 0.0} | missed)).where(epochs > 0)  # not made at the start
    return run._replace(curve=run.curve.assign(log_z=5.0, trusted_log_z=trusted, bound=5.0 + bound))


def test_refuted_over_epochs():
    """Filled where the bound says so, a panel a group, nothing where both were not made."""
    cd = both_estimates("cd", {1: 0.1, 2: 20.0, 4: 30.0}, bound=10.0)
    pcd = both_estimates("pcd", {1: 0.0, 2: 0.1, 4: 0.2}, bound=-1.0)
    groups = {"as_published": [cd, pcd], "tuned_speed": [pcd, make_run("sdcp", "mnist")]}
    figure = figures.refuted_over_epochs(groups, LONG)
    one, other = figure.axes
    titles = ["hyperparameters as published", "each algorithm tuned for speed"]
    assert [axis.get_title() for axis in (one, other)] == titles
    of_cd, filled, of_pcd, none = one.lines
    assert of_cd.get_xydata() == pytest.approx(np.array([[1, 0.1], [2, 20], [4, 30]]))
    assert of_pcd.get_ydata() == pytest.approx([0, 0.1, 0.2]) and not len(none.get_xdata())
    assert filled.get_xdata().tolist() == [1, 2, 4] and filled.get_linewidth() == 0
    assert [len(line.get_xdata()) for line in other.lines] == [3, 0, 0, 0]
    assert legend_of(figure) == ["CD", "PCD", "S-DCP", "filled: refuted by the bound"]
    assert words_of(figure)[0] == "CalTech 101 Silhouettes, 4 hidden units: when plain AIS fails"


def test_overfitting_where_all_trials_have_diverged_or_there_is_no_validation():
    """A panel stays empty, or says so; the others are drawn."""
    diverged, run = overfitted("pcd"), overfitted("cg")
    diverged.curve.loc[diverged.curve.epoch > 0, "status"] = "diverged"
    diverged = diverged._replace(curve=diverged.curve[diverged.curve.epoch <= 1])
    bare = run._replace(curve=run.curve.drop(columns="valid"))
    figure = figures.overfitting([diverged, run, bare], PAPER)
    assert not any(len(line.get_xdata()) for line in figure.axes[0].lines)
    assert [len(axis.lines) for axis in figure.axes[1:]] == [5, 2]
    assert [say(axis) for axis in figure.axes] == [[], [], ["no validation likelihood"]]
    assert words_of(figure)[-1] == "3 diverged trials left out."


@pytest.mark.parametrize("diverged", [0, 1, 2])
def test_sample_grids_mark_what_diverged(diverged):
    names = ["cd", "pcd", "cg"]
    images = [np.random.default_rng(n).integers(0, 2, (4, 9)) for n in range(3)]
    images[diverged] = None
    runs = [make_run(name) for name in names]
    runs[diverged].curve["status"] = "diverged"
    figure = figures.sample_grids(runs, images, (3, 3), PAPER, 5000)
    assert [axis.get_title() for axis in figure.axes] == [LABELS[name] for name in names]
    for number, axis in enumerate(figure.axes):
        assert say(axis) == (["diverged"] if number == diverged else [])
        if number != diverged:
            (drawn,) = axis.images
            expected = figures.tile(images[number], (3, 3))
            np.testing.assert_array_equal(drawn.get_array(), expected)
            assert drawn.get_clim() == (0, 1)
    words = " ".join(words_of(figure))
    assert "4 images after 5,000 Gibbs steps" in words and "reduced" not in words


def test_sample_grids_tell_a_model_that_is_not_kept_and_that_steps_are_reduced():
    runs, images = [make_run()._replace(trials=()), make_run("cg")], [None, np.zeros((1, 9))]
    figure = figures.sample_grids(runs, images, (3, 3), PAPER, 20)
    assert [say(axis) for axis in figure.axes] == [["model not kept"], []]
    assert "after 20 Gibbs" in words_of(figure)[0]
    assert words_of(figure)[-1] == "Gibbs steps reduced (paper: 5,000)."


# -------------------------------------------------------------------------------- files


def test_saved_figures_are_the_same_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setitem(plt.rcParams, "savefig.dpi", 50)  # fast
    stems = [tmp_path / "new" / name for name in ("one", "two")]
    for stem in stems:
        figure, axis = plt.subplots(figsize=(2, 1))
        axis.plot([1, 2], label="a label")
        axis.legend()
        figures.save(figure, stem)
    heads = {"pdf": b"%PDF-", "png": b"\x89PNG", "svg": b"<?xml"}
    assert len(list((tmp_path / "new").iterdir())) == 6
    for suffix, head in heads.items():
        one, two = (stem.with_suffix(f".{suffix}").read_bytes() for stem in stems)
        assert one.startswith(head) and len(one) > 2000
        assert one == two, suffix
    assert b"D:19700101" in stems[0].with_suffix(".pdf").read_bytes()
    assert ">a label<" in stems[0].with_suffix(".svg").read_text()  # text stays text


TABLE = pd.DataFrame({"dataset": ["Bars & Stripes", "5 %"], "mean (s)": ["1.41 ± 0.1", "2"]})


def test_saved_table(tmp_path):
    """In LaTeX a bare & in a caption is an error, a bare % swallows the closing brace."""
    stem, caption = tmp_path / "new" / "table_1", "Bars & Stripes: 5 % of 10_000."
    shown = figures.save_table(TABLE, stem, caption)
    pd.testing.assert_frame_equal(shown.data, TABLE)
    read = pd.read_csv(stem.with_suffix(".csv"), dtype=str)
    pd.testing.assert_frame_equal(read, TABLE)
    markdown = stem.with_suffix(".md").read_text().splitlines()
    assert markdown[:2] == [caption, ""]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in markdown[2:]]
    assert cells[0] == list(TABLE.columns) and cells[2:] == TABLE.to_numpy().tolist()
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


@pytest.mark.parametrize("lost", [[3], [2, 3]])
def test_tuning_map_where_settings_have_no_trial_left(lost):
    table = grid()
    table.loc[lost, ["diverged", "area", "final"]] = 4, np.nan, np.nan
    speed = figures.tuning_map(table, "MNIST", []).axes[0]
    there = {(0, 0): "-5.00", (0, 1): "-4.00"} | ({} if 2 in lost else {(1, 0): "-3.50"})
    assert cells(speed) == there and crossed(speed) == {(1, row - 2) for row in lost}
    assert outlined(speed) == {(0, 1)} | ({(1, 0)} - {(1, row - 2) for row in lost})


def test_sensitivity_map_is_over_epsilon_and_memory():
    rows = [(e, m, -3 - e - m, 2 * (e < 0.05)) for e in (0.01, 0.1) for m in (0.0, 0.9)]
    table = pd.DataFrame(rows, columns=["epsilon", "lambda_hessian", "final", "diverged"])
    table = table.assign(area=table.final - 1, learning_rate=0.07, trials=4)
    sweep = [make_run("sdcp_d", evaluate={}, hyperparameters={"learning_rate": 0.07})]
    final, area, share = figures.sensitivity_map(
        {"as_published": sweep}, {"as_published": table}
    ).axes[:3]
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
    return table.assign(**alike | {"trials": 4, "note": ""} | columns)


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


def test_measurements_one_a_row_with_their_intervals():
    table = figures.measurement_table(measured(), [CLAIM])
    others = "CD", "CG", "S-DCP"
    assert list(table["of"]) == [f"vs {other}, 1 nat below, test" for other in others]
    assert list(table["paper"]) == ["40 %", "30 %", ""]
    assert list(table["ours [95 % interval]"])[1] == "10 % [never, 20 %]"
    assert list(table.outcome) == ["holds", "fails", "undecided"] and set(table.trials) == {"4"}
    counted = measured(measure="range_over_epsilon", ours=np.inf, low=np.inf, high=np.inf)
    table = figures.measurement_table(counted.assign(trials=np.inf, note="two diverged"), [CLAIM])
    assert set(table["ours [95 % interval]"]) == {"diverges"} and set(table.trials) == {"exact"}
    assert set(table.note) == {"two diverged"}


@pytest.mark.parametrize(
    ("rule", "text"),
    [({"above": -87.8}, "above −87.80"), ({"between": [0.95, 1.1]}, "between 0.95 and 1.10")],
)
def test_rule_in_words(rule, text):
    assert figures.rule_text({"measure": "maximum", "holds_if": rule}) == text


# ---------------------------------------------------------------------------- refuted points


def refuted_run():
    """Plain AIS but at the start, at the end 20 nats too small; trusted everywhere."""
    run = make_run("sdcp_d", "caltech101_silhouettes", trials=1)
    curve = run.curve[run.curve.trial == 0].assign(log_z=100.0, bound=90.0, trusted_ess=50.0)
    last, first = curve["update"] == 4, curve["update"] == 0
    curve.loc[last, "bound"] = 120.0
    curve["trusted_log_z"] = np.where(last, 123.0, 100.2)
    for part in ("train", "test"):
        curve[f"trusted_{part}"] = curve[part] - curve.trusted_log_z + 100
    curve.loc[first, ["train", "test", "log_z", "ess"]] = np.nan
    return run._replace(curve=curve)


def test_of_several_refuted_runs_of_an_algorithm_the_worst_is_named():
    one = refuted_run()
    one.settings["batch_size"] = 100
    other = one._replace(curve=one.curve.assign(bound=one.curve.bound + 15))
    figure = figures.ablation_curves([[other], [one]], PAPER)
    said = "Plain AIS is refuted, its log-likelihood too high: S-DCP-D at least 35 nats at epoch 4."
    assert words_of(figure)[-1] == said


def test_refuted_points_are_hollow_with_what_they_can_be_at_most():
    run = refuted_run()
    plain, trusted = summarize(run), summarize(run, trusted=True)
    assert tuple(plain["update"]) == EPOCHS[1:] and list(plain.refuted_by) == [0, 0, 20]
    assert tuple(trusted["update"]) == EPOCHS and "refuted_by" not in trusted
    assert trusted.test_mean.iloc[-1] == pytest.approx(plain.test_mean.iloc[-1] - 23)
    figure = figures.likelihood_curves([run], PAPER)
    assert words_of(figure)[-1].startswith(
        "Plain AIS is refuted, its log-likelihood too high: S-DCP-D at least 20 nats"
    )
    for axis, part in zip(figure.axes[::2], ("train", "test"), strict=True):
        value = plain[f"{part}_mean"].iloc[-1]
        (hollow,) = [d for d in axis.lines if d.get_label().endswith(", refuted")]
        assert [tuple(point) for point in hollow.get_xydata()] == [(4, value)]
        assert to_hex(hollow.get_markerfacecolor()) == "#ffffff"
        (at_most,) = [d for d in axis.lines if d.get_marker() == "_"]
        assert [tuple(point) for point in at_most.get_xydata()] == [(4, value - 20)]
        (beside,) = [d for d in axis.lines if d.get_linestyle() == "-."]
        np.testing.assert_allclose(beside.get_ydata(), trusted[f"{part}_mean"])
    assert {"trusted estimate", "refuted; at most –"} <= {*legend_of(figure)}
    figure = figures.likelihood_curves([make_run()], PAPER)  # no bound refutes it
    assert not [d for d in figure.axes[0].lines if d.get_marker() == "_"]
    assert "refuted" not in " ".join(words_of(figure) + legend_of(figure))


def test_what_several_trials_can_be_at_most():
    """Each trial what its own bound allows: the mean of these, and the largest."""
    one = refuted_run()
    other = one.curve.assign(trial=1, bound=90.0, train=one.curve.train - 1)
    run = one._replace(curve=pd.concat([one.curve, other]))
    end, value = summarize(run).iloc[-1], one.curve.train.iloc[-1]
    assert end.train_mean_at_most == pytest.approx(value - (20 + 1) / 2)
    assert end.train_max_at_most == pytest.approx(value - 1) and end.refuted_by == 20
    drawn = figures.likelihood_curves([run], PAPER).axes[:2]
    for axis, most in zip(drawn, (end.train_mean_at_most, end.train_max_at_most), strict=True):
        (bar,) = [line for line in axis.lines if line.get_marker() == "_"]
        assert bar.get_ydata() == pytest.approx([most])
