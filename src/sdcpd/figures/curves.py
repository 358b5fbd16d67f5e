"""Likelihood curves: Figures 1–4 of the paper, and those that vary what it leaves open."""

import numpy as np
import pandas as pd

from ..algorithms import LABELS
from ..experiments import GROUPS
from ..likelihood import likelihoods
from ..study.compare import missed_by_plain, parts_of, summarize
from .captions import budget_note, choice, describe_runs, label_of, model_of, origin_line
from .style import NATS, STYLES, bottom_legend, headline, logarithmic, mpl, plt

PUBLISHED = {"ls": (0, (4, 2)), "lw": 1, "mfc": "white"}
GREY = {"color": "0.4"}  # of all algorithms, in legends
TRUSTED = {"ls": "-.", "lw": 1, "marker": "x", "ms": 4}


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
    parts = _parts(runs[0])
    figure, axes = plt.subplots(
        len(parts), 2, figsize=(10, 3.6 * len(parts) + 0.7), sharex=True, squeeze=False
    )
    shorter = runs[0].settings["epochs"] < paper_budget["epochs"] and published_curves is not None
    for row, (part, name) in zip(axes, parts.items(), strict=True):
        for axis, statistic, word in zip(row, ("mean", "max"), ("mean", "maximum"), strict=True):
            for run in runs:
                _draw_curve(axis, run, f"{part}_{statistic}", shorter)
            for run in step_matched:
                _draw_baseline(axis, run, f"{part}_{statistic}")
            if published_curves is not None:
                panel = f"{name.replace(' ', '')}-{statistic}"
                _draw_published(axis, published_curves[published_curves.panel == panel])
            axis.set_title(f"{name}, {word} over trials")
            if shorter:
                logarithmic(axis)
            else:
                _leave_out_the_rise(axis)
            _name_ends(axis)
        row[0].set_ylabel(NATS)
    for axis in axes[-1]:
        axis.set_xlabel("epoch" + (" (logarithmic)" if shorter else ""))
    _legend(figure, axes[0, 0], published_curves is not None)
    title = f"{model_of(runs[0])}, {GROUPS.get(group, group)}"
    headline(figure, title, describe_runs(runs, paper_budget))
    return figure


def known_rates(runs, paper_budget, published_curves):
    """Stated learning rates: a panel a rate, ours solid, published dashed, as far as ours go."""
    end, whole = max(run.curve.epoch.max() for run in runs), published_curves.epoch.max()
    published_curves = published_curves[published_curves.epoch <= end]
    settings = [run.settings for run in runs]
    rates = sorted({each["hyperparameters"]["learning_rate"] for each in settings})
    figure, axes = plt.subplots(1, len(rates), figsize=(10, 4.2), sharey=True, squeeze=False)
    for axis, rate in zip(axes[0], rates, strict=True):
        for run in runs:
            if run.settings["hyperparameters"]["learning_rate"] == rate:
                _draw_curve(axis, run, "test_mean", run.settings["ais"] is not None)
        known = published_curves[published_curves.learning_rate == rate]
        _draw_published(axis, known[known.algorithm.isin({each["algorithm"] for each in settings})])
        axis.set(title=f"learning rate η = {rate:g}", xlabel="epoch")
    axes[0, 0].set_ylabel(NATS)
    _legend(figure, axes[0, 0], with_published=True)
    steps = sorted({(each["n_inner_iterations"], each["n_gibbs_steps"]) for each in settings})
    counts = ", ".join(f"K = {k}" if d == 1 else f"d = {d}, K′ = {k}" for d, k in steps)
    n = max(each["trials"] for each in settings)
    trials = f"mean over {n} trials" if n > 1 else "one trial"
    title = f"{model_of(runs[0])}, {counts}, {trials}"
    less = f"The first {end:,g} of the published curves' {whole:,g} epochs."
    headline(figure, title, describe_runs(runs, paper_budget) + [less] * bool(end < whole))
    return figure


def ablation_curves(variants, paper_budget):
    """What the paper leaves open about the data: a column for each choice, train above test.

    Parameters
    ----------
    variants : list of list of runs.Run
        For each choice a run of each algorithm, all of as many trials and epochs.
    """
    n = len(variants)
    figure, axes = plt.subplots(
        2, n, figsize=(max(3.6 * n, 8), 6.6), sharex=True, sharey="row", squeeze=False
    )
    for column, runs in zip(axes.T, variants, strict=True):
        for axis, part in zip(column, ("train", "test"), strict=True):
            for run in runs:
                _draw_curve(axis, run, f"{part}_mean", from_first_epoch=True)
            logarithmic(axis)
        column[0].set_title(choice(runs[0].settings).replace(", ", "\n", 1), fontsize=9)
        column[1].set_xlabel("epoch (logarithmic)")
    axes[0, 0].set_ylabel(f"train\n{NATS}")
    axes[1, 0].set_ylabel(f"test\n{NATS}")
    for axis in axes.flat:  # once the shared limits are final
        _name_ends(axis)
    _legend(figure, axes[0, 0])
    every = [run for runs in variants for run in runs]
    headline(figure, f"{model_of(every[0])}: other choices", describe_runs(every, paper_budget))
    return figure


def overfitting(runs, paper_budget):
    """Train, validation and test likelihood of each algorithm, and the best epoch on validation."""
    figure, axes = plt.subplots(
        1, len(runs), figsize=(2.5 * len(runs) + 0.6, 4.4), sharey=True, squeeze=False
    )
    dashes = {"train": (0, (4, 2)), "valid": (0, (1, 1)), "test": "-"}
    star = {"marker": "*", "color": "red", "ms": 11, "mec": "white"}
    for axis, run in zip(axes[0], runs, strict=True):
        color, _ = STYLES[run.settings["algorithm"]]
        table = summarize(run, trusted=True)
        table = table[table.epoch > 0]
        for part in parts_of(run):
            axis.plot(table.epoch, table[f"{part}_mean"], color=color, ls=dashes[part], lw=1.5)
            _draw_band(axis, table, part, color)
        if "valid" not in run.curve:
            axis.text(0.5, 0.03, "no validation likelihood", ha="center", transform=axis.transAxes)
        elif len(table):
            best = table.loc[table.valid_mean.idxmax()]
            axis.axvline(best.epoch, color="0.6", lw=0.8)
            axis.plot(best.epoch, best.test_mean, **star, zorder=5)
        logarithmic(axis)
        axis.set(title=label_of(run), xlabel="epoch (logarithmic)")
    axes[0, 0].set_ylabel(NATS)
    names = {"train": "train", "valid": "validation", "test": "test"}
    styles = {names[part]: {"color": "0.3", "ls": dash, "lw": 1.5} for part, dash in dashes.items()}
    bottom_legend(figure, styles | {"test at the best epoch on validation": star | {"lw": 0}})
    lines = describe_runs(runs, paper_budget)
    if all("trusted_log_z" in run.curve for run in runs):
        lines.append(
            "Drawn: likelihoods by the trusted estimate, where it was made at every point."
        )
    headline(figure, f"{model_of(runs[0])}: overfitting", lines)
    return figure


def refuted_over_epochs(groups, paper_budget):
    """By how much plain AIS fails while models learn: trusted minus plain log Z, a panel a group.

    Parameters
    ----------
    groups : dict
        Name of the hyperparameters -> list of runs.Run. Filled: a bound refutes plain AIS.
    """
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    size = max(3.6 * columns, 8), 2.8 * rows + 1
    figure, axes = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for axis in axes.flat[len(groups) :]:
        axis.set_axis_off()
    handles = {}
    for axis, (group, runs) in zip(axes.flat, groups.items(), strict=False):
        for run in runs:
            color, marker = STYLES[run.settings["algorithm"]]
            how = {"color": color, "marker": marker, "ms": 5, "label": label_of(run)}
            table = missed_by_plain(run)
            (line,) = axis.plot(table.epoch, table.missed, mfc="white", lw=1.2, **how)
            handles.setdefault(label_of(run), line)
            table = table[table.refuted]
            axis.plot(table.epoch, table.missed, lw=0, **how)
        axis.set_yscale("symlog", linthresh=1)
        # 2 and 5, too: else nothing shows on a few nats that the scale is not linear.
        marks = mpl.ticker.SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5))
        axis.yaxis.set_major_locator(marks)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_title(GROUPS.get(group, group))
        axis.xaxis.set_tick_params(labelbottom=True)
        axis.set_xlabel("epoch")
    for axis in axes[:, 0]:
        axis.set_ylabel("log Z, trusted − plain (nats)")
    low, high = axes[0, 0].get_ylim()  # of all panels; ±1 at least, so that little looks little
    axes[0, 0].set(xlim=(0, None), ylim=(min(low, -1.1), max(high, 1.1)))
    filled = {"filled: refuted by the bound": GREY | {"marker": "o", "lw": 0}}
    bottom_legend(figure, filled, [*handles.values()])
    every = [run for runs in groups.values() for run in runs]
    notes = dict.fromkeys(budget_note(run, paper_budget) for run in every)
    lines = ["Some runs: " * (len(notes) > 1) + note for note in notes if note]
    title = f"{model_of(every[0])}: when plain AIS fails"
    headline(figure, title, [origin_line(every), *lines])
    return figure


def trial_curves(run):
    """All trials of one run: average log-likelihood, train and test."""
    parts = _parts(run)
    figure, axes = plt.subplots(1, len(parts), figsize=(5 * len(parts), 3.2), squeeze=False)
    color, _ = STYLES[run.settings["algorithm"]]
    table = summarize(run, trusted=True)
    for axis, (part, name) in zip(axes[0], parts.items(), strict=True):
        for _, trial in run.curve.groupby("trial"):
            axis.plot(trial.epoch, likelihoods(trial, part), color=color, lw=0.8, alpha=0.6)
        axis.plot(table.epoch, table[f"{part}_mean"], color="0.2", lw=2, ls="--", label="mean")
        axis.set(title=name, xlabel="epoch")
        axis.legend(loc="lower right")
    axes[0, 0].set_ylabel(NATS)
    figure.tight_layout()
    return figure


def _parts(run):
    """The images whose likelihoods are shown, with their names: of Bars & Stripes test is train."""
    if run.settings["dataset"] == "bars_and_stripes":
        return {"test": "train = test"}
    return {"train": "train", "test": "test"}


def _draw_curve(axis, run, column, from_first_epoch=False):
    """A column of ``summarize``, by plain AIS: a mean with its interval, or a maximum.

    Beside it what is trusted; refuted points are hollow, with what they can be at most.
    """
    color, marker = STYLES[run.settings["algorithm"]]
    table = summarize(run)
    if from_first_epoch:  # the start has no place on a logarithmic axis
        table = table[table.epoch > 0]
    how = {"color": color, "lw": 1.4, "marker": marker, "ms": 4, "label": label_of(run)}
    axis.plot(table.epoch, table[column], markevery=max(1, len(table) // 10), **how)
    part, statistic = column.split("_")
    if statistic == "mean" and run.settings["trials"] > 1:
        _draw_band(axis, table, part, color)
    refuted = table[table.refuted_by > 0]
    if len(refuted):
        high, how = refuted[column], {"color": color, "zorder": 4}
        low, name = refuted[f"{column}_at_most"], f"_{run.settings['algorithm']}, refuted"
        axis.plot(refuted.epoch, high, marker, mfc="white", ms=5, lw=0, label=name, **how)
        axis.vlines(refuted.epoch, low, high, lw=0.8, ls=":", **how)
        axis.plot(refuted.epoch, low, "_", ms=9, mew=1.5, **how)
    if "trusted_log_z" in run.curve:
        made = run._replace(curve=run.curve[run.curve.trusted_log_z.notna()])
        table = summarize(made, trusted=True)
        table = table[table.epoch > 0] if from_first_epoch else table
        axis.plot(table.epoch, table[column], color=color, alpha=0.8, **TRUSTED)


def _draw_band(axis, table, part, color):
    low, high = table[f"{part}_low"], table[f"{part}_high"]
    axis.fill_between(table.epoch, low, high, color=color, alpha=0.15, lw=0)


def _draw_baseline(axis, run, column):
    color, _ = STYLES[run.settings["algorithm"]]
    rate = run.settings["hyperparameters"]["learning_rate"]
    label = f"{label_of(run)}, step-matched (η = {rate:.3g})"
    table = summarize(run)
    axis.plot(table.epoch, table[column], color=color, lw=1.6, ls=":", label=label)


def _draw_published(axis, curves):
    for algorithm, curve in curves.groupby("algorithm"):
        color, marker = STYLES[algorithm]
        axis.plot(curve.epoch, curve.avg_loglik, color=color, marker=marker, ms=3.5, **PUBLISHED)


def _solid(axis):
    """Our curves, by plain AIS or exact, that have a point."""
    return [d for d in axis.lines if d.get_label() in LABELS.values() and len(d.get_xdata())]


def _leave_out_the_rise(axis):
    """Not shown: what is trusted before plain AIS begins, where it is lower than all that follows.

    The rise of the first epochs would take most of the height.
    """
    begin = min((line.get_xdata()[0] for line in _solid(axis)), default=np.inf)
    bands = [path.vertices for drawn in axis.collections for path in drawn.get_paths()]
    points = np.concatenate([*(line.get_xydata() for line in axis.lines), *bands])
    x, y = points[np.isfinite(points[:, 1])].T
    later = y[x >= begin]
    if later.size and y.min() < later.min():
        margin = 0.1 * (y.max() - later.min())
        axis.set_ylim(later.min() - margin, y.max() + margin)


def _name_ends(axis):
    """The name of each algorithm beside its curve, moved apart where curves end close together."""
    lines = sorted(_solid(axis), key=lambda line: line.get_ydata()[-1])
    axis.get_ylim()  # brings the limits up to date
    to_axes = axis.transData + axis.transAxes.inverted()
    last_points = [line.get_xydata()[-1] for line in lines]
    places = _move_apart(
        [to_axes.transform(last_point)[1] for last_point in last_points], gap=0.065
    )
    to_name = {"arrowstyle": "-", "ls": (0, (1, 3)), "lw": 0.7, "shrinkA": 0}  # no part of a curve
    for line, last_point, place in zip(lines, last_points, places, strict=True):
        axis.annotate(
            line.get_label(),
            last_point,
            (1.03, place),
            textcoords="axes fraction",
            fontsize=7.5,
            va="center",
            arrowprops=to_name | {"color": line.get_color()},
        )


def _move_apart(heights, gap):
    """Rising heights with at least this gap between them, below 1 where there is room."""
    gaps = gap * np.arange(len(heights))
    places = np.maximum.accumulate(np.array(heights) - gaps) + gaps
    return np.minimum(places, 1 - gaps[::-1])


def _legend(figure, axis, with_published=False):
    handles, _ = axis.get_legend_handles_labels()
    styles = {}
    if with_published:
        styles["published (dashed)"] = GREY | PUBLISHED | {"marker": "o", "ms": 4}
    if any(line.get_linestyle() == "-." for line in axis.lines):
        styles["trusted estimate"] = GREY | TRUSTED
    if any(line.get_label().endswith(", refuted") for line in axis.lines):
        styles["refuted; at most –"] = GREY | {"ls": ":", "marker": "o", "mfc": "white", "ms": 5}
    bottom_legend(figure, styles, handles)
