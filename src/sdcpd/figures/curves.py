"""Likelihood curves: Figures 1–4 of the paper, and those that vary what it leaves open."""

import pandas as pd

from ..algorithms import LABELS
from ..data import title_of
from ..likelihood import MIN_ESS, likelihoods
from ..study.compare import parts_of, summarize
from .captions import choice, describe_runs
from .style import STYLES, headline, logarithmic, mpl, plt

GROUP_NAMES = {
    "as_published": "hyperparameters as published",
    "tuned_speed": "each algorithm tuned for speed",
    "tuned_final": "each algorithm tuned for its final value",
}


def published(path, **where):
    """Rows of a published-curves file with these values, algorithm names as in this package."""
    table = pd.read_csv(path)
    for column, value in where.items():
        table = table[table[column] == value]
    back = {label: name for name, label in LABELS.items()}
    return table.assign(algorithm=table.algorithm.map(back)).dropna(subset="algorithm")


def likelihood_curves(
    runs, paper_budget, published_curves=None, step_matched=(), group="as_published"
):
    """Figures 1–4: mean and maximum over trials of the average log-likelihood, train and test.

    Parameters
    ----------
    runs : list of runs.Run
        One for each algorithm.
    published_curves : DataFrame, optional
        epoch, algorithm, panel and avg_loglik; drawn dashed beside ours.
    step_matched : list of runs.Run
        Baselines with the smallest step of S-DCP-D; drawn dotted.
    group : str
        Of the hyperparameters; for the title.

    Returns
    -------
    Figure
    """
    same = runs[0].settings["dataset"] == "bars_and_stripes"  # test is train
    parts = ("test",) if same else ("train", "test")
    figure, axes = plt.subplots(
        len(parts), 2, figsize=(10, 3.6 * len(parts) + 0.7), sharex=True, squeeze=False
    )
    shorter = runs[0].settings["epochs"] < paper_budget["epochs"] and published_curves is not None
    for row, part in enumerate(parts):
        for column, statistic in enumerate(("mean", "max")):
            axis = axes[row, column]
            for run in runs:
                _draw_curve(axis, run, part, statistic, shorter)
            for run in step_matched:
                _draw_baseline(axis, run, part, statistic)
            if published_curves is not None:
                panel = f"{'train=test' if same else part}-{statistic}"
                _draw_published(axis, published_curves[published_curves.panel == panel])
            what = "train = test" if same else part
            axis.set_title(f"{what}, {'mean' if statistic == 'mean' else 'maximum'} over trials")
            if column == 0:
                axis.set_ylabel("average log-likelihood (nats)")
            if row == len(parts) - 1:
                axis.set_xlabel("epoch" + (" (logarithmic)" if shorter else ""))
            if shorter:
                logarithmic(axis)
            _name_ends(axis, runs, part, statistic)
    legend(figure, axes[0, 0], published_curves is not None)
    settings = runs[0].settings
    how = GROUP_NAMES.get(group, group)
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units, {how}"
    headline(figure, title, describe_runs(runs, paper_budget))
    return figure


def known_rates(runs, paper_budget, published_curves):
    """Bars & Stripes with stated learning rates: a panel a rate, ours solid, published dashed."""
    rates = sorted({run.settings["hyperparameters"]["learning_rate"] for run in runs})
    figure, axes = plt.subplots(1, len(rates), figsize=(10, 4.2), sharey=True, squeeze=False)
    for axis, rate in zip(axes[0], rates, strict=True):
        for run in runs:
            if run.settings["hyperparameters"]["learning_rate"] == rate:
                _draw_curve(axis, run, "test", "mean", False)
        known = published_curves[published_curves.learning_rate == rate]
        ours = {run.settings["algorithm"] for run in runs}
        _draw_published(axis, known[known.algorithm.isin(ours)])
        axis.set_title(f"learning rate η = {rate:g}")
        axis.set_xlabel("update (= epoch)")
    axes[0, 0].set_ylabel("average log-likelihood (nats)")
    legend(figure, axes[0, 0], True)
    shared = runs[0].settings
    steps = sorted({(r.settings["n_inner_iterations"], r.settings["n_gibbs_steps"]) for r in runs})
    counts = ", ".join(f"K = {k}" if d == 1 else f"d = {d}, K′ = {k}" for d, k in steps)
    model = f"{title_of(shared['dataset'])}, {shared['n_hidden']} hidden units"
    title = f"{model}, {counts}, mean over trials"
    headline(figure, title, describe_runs(runs, paper_budget))
    return figure


def ablation_curves(variants, paper_budget):
    """What the paper leaves open about the data: a column for each choice, train above test.

    Parameters
    ----------
    variants : list of list of runs.Run
        For each choice a run of each algorithm, all of as many trials and epochs.
    """
    columns = len(variants)
    figure, axes = plt.subplots(
        2, columns, figsize=(max(3.6 * columns, 8), 6.6), sharex=True, sharey="row", squeeze=False
    )
    for column, runs in enumerate(variants):
        for row, part in enumerate(("train", "test")):
            axis = axes[row, column]
            for run in runs:
                _draw_curve(axis, run, part, "mean", True)
            logarithmic(axis)
        axes[0, column].set_title(choice(runs[0].settings), fontsize=9)
        axes[1, column].set_xlabel("epoch (logarithmic)")
    for row, part in enumerate(("train", "test")):
        axes[row, 0].set_ylabel(f"{part}: average log-likelihood (nats)")
        for axis, runs in zip(axes[row], variants, strict=True):
            _name_ends(axis, runs, part, "mean")  # once the shared limits are final
    legend(figure, axes[0, 0], False)
    every = [run for runs in variants for run in runs]
    settings = variants[0][0].settings
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units: other choices"
    headline(figure, title, describe_runs(every, paper_budget))
    return figure


def overfitting(runs, paper_budget):
    """Train, validation and test likelihood of each algorithm, and the best epoch on validation."""
    figure, axes = plt.subplots(
        1, len(runs), figsize=(2.5 * len(runs) + 0.6, 4.4), sharey=True, squeeze=False
    )
    dashes = {"train": (0, (4, 2)), "valid": (0, (1, 1)), "test": "-"}
    for axis, run in zip(axes[0], runs, strict=True):
        color, _ = STYLES[run.settings["algorithm"]]
        table = summarize(run, trusted=True)
        table = table[table.epoch > 0]
        for part in parts_of(run):
            dash = dashes[part]
            axis.plot(table.epoch, table[f"{part}_mean"], color=color, ls=dash, lw=1.5)
            low, high = table[f"{part}_low"], table[f"{part}_high"]
            axis.fill_between(table.epoch, low, high, color=color, alpha=0.15, lw=0)
        if "valid" not in run.curve:
            axis.text(0.5, 0.03, "no validation likelihood", ha="center", transform=axis.transAxes)
        elif len(table):
            best = table.loc[table.valid_mean.idxmax()]
            axis.axvline(best.epoch, color="0.6", lw=0.8)
            axis.plot(best.epoch, best.test_mean, "*", color="red", ms=11, mec="white", zorder=5)
        axis.set_title(LABELS[run.settings["algorithm"]])
        logarithmic(axis)
        axis.set_xlabel("epoch (logarithmic)")
    axes[0, 0].set_ylabel("average log-likelihood (nats)")
    line = mpl.lines.Line2D
    handles = [line([], [], color="0.3", ls=dash, lw=1.5) for dash in dashes.values()]
    handles.append(line([], [], marker="*", color="red", mec="white", ms=11, lw=0))
    labels = ["train", "validation", "test", "test at the best epoch on validation"]
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8)
    settings = runs[0].settings
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units: overfitting"
    headline(figure, title, describe_runs(runs, paper_budget))
    return figure


def trial_curves(run):
    """All trials of one run: average log-likelihood, train and test."""
    same = run.settings["dataset"] == "bars_and_stripes"
    parts = ("test",) if same else ("train", "test")
    figure, axes = plt.subplots(1, len(parts), figsize=(5 * len(parts), 3.2), squeeze=False)
    color, _ = STYLES[run.settings["algorithm"]]
    for axis, part in zip(axes[0], parts, strict=True):
        for _, trial in run.curve.groupby("trial"):
            axis.plot(trial.epoch, likelihoods(trial, part), color=color, lw=0.8, alpha=0.6)
        table = summarize(run, trusted=True)
        axis.plot(table.epoch, table[f"{part}_mean"], color="0.2", lw=2, ls="--", label="mean")
        axis.set_title("train = test" if same else part)
        axis.set_xlabel("epoch")
        axis.legend(loc="lower right")
    axes[0, 0].set_ylabel("average log-likelihood (nats)")
    figure.tight_layout()
    return figure


def _draw_curve(axis, run, part, statistic, logarithmic):
    color, marker = STYLES[run.settings["algorithm"]]
    table = summarize(run)
    if logarithmic:
        table = table[table.epoch > 0]
    label = LABELS[run.settings["algorithm"]]
    every = max(1, len(table) // 10)
    values = table[f"{part}_{statistic}"]
    axis.plot(
        table.epoch, values, color=color, marker=marker, markevery=every, ms=4, lw=1.4, label=label
    )
    if statistic == "mean" and run.settings["trials"] > 1:
        low, high = table[f"{part}_low"], table[f"{part}_high"]
        axis.fill_between(table.epoch, low, high, color=color, alpha=0.15, lw=0)
    doubtful = table[table.ess < MIN_ESS]
    axis.plot(
        doubtful.epoch, doubtful[f"{part}_{statistic}"], "o", ms=10, mfc="none", mec="red", lw=0
    )
    _draw_trusted(axis, run, table, part, statistic, logarithmic)


def _draw_trusted(axis, run, table, part, statistic, logarithmic):
    """Beside plain AIS what is trusted; refuted points hollow, with what they can be at most."""
    color, marker = STYLES[run.settings["algorithm"]]
    lost = table[table.refuted_by > 0]
    if len(lost):
        high, name = lost[f"{part}_{statistic}"], f"_{run.settings['algorithm']}, refuted"
        low, how = high - lost.refuted_by, {"color": color, "zorder": 4}
        axis.plot(lost.epoch, high, marker, mfc="white", ms=5, lw=0, label=name, **how)
        axis.vlines(lost.epoch, low, high, lw=0.8, ls=":", **how)
        axis.plot(lost.epoch, low, "_", ms=9, mew=1.5, **how)
    if "trusted_log_z" in run.curve:
        made = run._replace(curve=run.curve[run.curve.trusted_log_z.notna()])
        table = summarize(made, trusted=True)
        table = table[table.epoch > 0] if logarithmic else table
        values = table[f"{part}_{statistic}"]
        axis.plot(table.epoch, values, color=color, lw=1, ls="-.", marker="x", ms=4, alpha=0.8)


def _draw_baseline(axis, run, part, statistic):
    color, _ = STYLES[run.settings["algorithm"]]
    table = summarize(run)
    rate = run.settings["hyperparameters"]["learning_rate"]
    label = f"{LABELS[run.settings['algorithm']]}, step-matched (η = {rate:.3g})"
    axis.plot(table.epoch, table[f"{part}_{statistic}"], color=color, lw=1.6, ls=":", label=label)


def _draw_published(axis, curves):
    for algorithm, curve in curves.groupby("algorithm"):
        color, marker = STYLES[algorithm]
        axis.plot(
            curve.epoch,
            curve.avg_loglik,
            color=color,
            marker=marker,
            ms=3.5,
            mfc="white",
            lw=1,
            ls=(0, (4, 2)),
        )


def _name_ends(axis, runs, part, statistic):
    """The name of each algorithm beside its curve, moved apart where curves end close together."""
    ends = []
    for run in runs:
        table = summarize(run)
        if len(table):
            last = table.iloc[-1]
            ends.append((last[f"{part}_{statistic}"], last.epoch, run.settings["algorithm"]))
    axis.get_ylim()  # brings the limits up to date
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = sorted((to_axes.transform((x, y))[1], x, y, name) for y, x, name in ends)
    places = _move_apart([height for height, *_ in ends], gap=0.065)
    for (_, x, y, name), place in zip(ends, places, strict=True):
        axis.annotate(
            LABELS[name],
            (x, y),
            (1.03, place),
            textcoords="axes fraction",
            fontsize=7.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": STYLES[name][0], "lw": 0.7, "shrinkA": 0},
        )


def _move_apart(heights, gap):
    """Rising heights with at least this gap between them, below 1 where there is room."""
    places = []
    for height in heights:
        places.append(max(height, places[-1] + gap) if places else height)
    ceiling = 1.0
    for i in reversed(range(len(places))):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places


def legend(figure, axis, with_published):
    handles, labels = axis.get_legend_handles_labels()
    line = mpl.lines.Line2D
    if with_published:
        handles.append(
            line([], [], color="0.4", lw=1, ls=(0, (4, 2)), marker="o", mfc="white", ms=4)
        )
        labels.append("published (dashed)")
    if any(drawn.get_linestyle() == "-." for drawn in axis.lines):
        handles.append(line([], [], color="0.4", lw=1, ls="-.", marker="x", ms=4))
        labels.append("trusted estimate")
    if any(len(d.get_xdata()) for d in axis.lines if d.get_label().endswith(", refuted")):
        handles.append(line([], [], color="0.4", ls=":", marker="o", mfc="white", ms=5))
        labels.append("refuted; at most –")
    if any(len(drawn.get_xdata()) for drawn in axis.lines if drawn.get_markeredgecolor() == "red"):
        handles.append(line([], [], marker="o", ms=9, mfc="none", mec="red", lw=0))
        labels.append(f"AIS effective sample size < {MIN_ESS}")
    figure.legend(handles, labels, loc="lower center", ncols=len(handles), fontsize=8)
