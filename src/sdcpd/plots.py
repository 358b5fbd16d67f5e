"""The paper's figures and tables from run files. One colour and marker per algorithm everywhere.

The colours are Okabe & Ito's, which colour-blind readers can tell apart; markers and direct
labels do the same in grey print.
"""

import os
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd

from . import claims as judge
from .algorithms import ALGORITHMS, LABELS
from .archive import best_trial
from .data import title_of
from .intervals import quantile_of
from .likelihood import MIN_ESS, likelihoods, refuted
from .tuning import SYMBOLS

# Drawings do not depend on the user's settings, which matplotlib looks for here, and then there.
_INLINE = "module://matplotlib_inline.backend_inline"
os.environ["MPLBACKEND"] = _INLINE if "ipykernel" in sys.modules else "agg"
os.environ["MATPLOTLIBRC"] = os.devnull
with chdir(Path(__file__).parent):
    import matplotlib as mpl
    import matplotlib.pyplot as plt
mpl.rcdefaults()  # where it had been imported before

STYLES = {name: algorithm.style for name, algorithm in ALGORITHMS.items()}
GROUP_NAMES = {
    "as_published": "hyperparameters as published",
    "tuned_speed": "each algorithm tuned for speed",
    "tuned_final": "each algorithm tuned for its final value",
}
_LATEX = {c: f"\\{c}" for c in "&%$#_"} | {
    "σ": r"$\sigma$",
    "η": r"$\eta$",
    "ε": r"$\epsilon$",
    "λ": r"$\lambda$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "∇": r"$\nabla$",
    "f̂": r"$\hat f$",
    "−": "$-$",
    "±": r"$\pm$",
    "′": "$'$",
}


mpl.rcParams.update(
    {
        "svg.hashsalt": "sdcpd",  # with SOURCE_DATE_EPOCH=0: the same bytes every time
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "figure.dpi": 110,
        "savefig.dpi": 200,
    }
)


def save(figure, stem):
    """Write ``stem``.pdf, .png and .svg."""
    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("pdf", "png", "svg"):
        figure.savefig(f"{stem}.{suffix}", bbox_inches="tight")


def save_table(table, stem, caption):
    """Write ``stem``.csv, .md and .tex from a DataFrame whose cells are text or numbers."""
    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(f"{stem}.csv", index=False)
    Path(f"{stem}.md").write_text(
        f"{caption}\n\n{table.to_markdown(index=False, disable_numparse=True)}\n", encoding="utf-8"
    )
    latex = _latex(table).to_latex(
        index=False, caption=_latex(caption), label=f"tab:{Path(stem).name}"
    )
    Path(f"{stem}.tex").write_text(latex, encoding="utf-8")


def _latex(content):
    """Text, or a table of text, as LaTeX source that needs no package."""
    if isinstance(content, pd.DataFrame):
        return content.map(_latex).rename(columns=_latex)
    for plain, source in _LATEX.items():
        content = str(content).replace(plain, source)
    return content


def summarize(run, trusted=False):
    """Mean, maximum and spread over trials at each evaluation point of a run.

    Diverged trials leave the mean and the maximum at the point where they diverged; ``trials``
    counts those that are left.

    Parameters
    ----------
    trusted : bool
        Of what a run is judged by (``likelihood.likelihoods``), instead of what the paper shows,
        plain AIS where it was made.

    Returns
    -------
    DataFrame
        epoch, update, trials, ess (the smallest), train_mean, train_max, train_low, train_high and
        the same for test, and for valid where there are validation images. low … high is the 95 %
        interval (Student's t) of the mean over trials; NaN where one trial is left. Of plain AIS
        also refuted_by: how many nats a likelihood is above what the bound on log Z allows, 0
        where it may be.
    """
    alive = run.curve[run.curve.status == "ok"]
    if trusted:
        alive = alive.assign(**{part: likelihoods(alive, part) for part in _parts(run)})
        if "trusted_ess" in alive:
            alive = alive.assign(ess=alive.trusted_ess.fillna(alive.ess))
    alive = alive[alive.train.notna()]
    over = alive.bound - alive.log_z if "bound" in alive else pd.Series(np.nan, alive.index)
    alive = alive.assign(over=over.where(refuted(0, over), 0))
    groups = alive.groupby(["epoch", "update"])
    table = groups.agg(trials=("trial", "size"), ess=("ess", "min"), refuted_by=("over", "max"))
    quantile = quantile_of(table.trials)
    for part in _parts(run):
        half = quantile * groups[part].std(ddof=1) / np.sqrt(table.trials)
        table[f"{part}_mean"] = groups[part].mean()
        table[f"{part}_max"] = groups[part].max()
        table[f"{part}_low"] = table[f"{part}_mean"] - half
        table[f"{part}_high"] = table[f"{part}_mean"] + half
    table = table.reset_index()
    return table.drop(columns="refuted_by") if trusted else table


def _parts(run):
    return [part for part in ("train", "valid", "test") if part in run.curve]


def published(path, **where):
    """Rows of a published-curves file with these values, algorithm names as in this package."""
    table = pd.read_csv(path)
    for column, value in where.items():
        table = table[table[column] == value]
    back = {label: name for name, label in LABELS.items()}
    return table.assign(algorithm=table.algorithm.map(back)).dropna(subset="algorithm")


def budget_note(run, paper_budget):
    """Where a run spent less than the paper, in words; empty where it did not."""
    settings, less = run.settings, []
    if settings["trials"] < paper_budget["trials"]:
        plural = "s" if settings["trials"] > 1 else ""
        less.append(f"{settings['trials']} trial{plural} (paper: {paper_budget['trials']})")
    if settings["epochs"] < paper_budget["epochs"]:
        plural = "s" if settings["epochs"] != 1 else ""
        less.append(f"{settings['epochs']:.10g} epoch{plural} (paper: {paper_budget['epochs']:,})")
    ours, papers = settings["ais"], paper_budget["ais"]
    if ours and papers and ours["n_temperatures"] < papers["n_temperatures"]:
        paper = f"{papers['n_temperatures']:,}"
        less.append(f"AIS with {ours['n_temperatures']:,} temperatures (paper: {paper})")
    if ours and papers and ours["n_particles"] < papers["n_particles"]:
        less.append(f"{ours['n_particles']} AIS particles (paper: {papers['n_particles']})")
    return f"Reduced budget: {'; '.join(less)}." if less else ""


def describe_runs(runs, paper_budget):
    """The lines under a figure's title: device, date and budget."""
    diverged = sum(int((run.curve.status == "diverged").sum()) for run in runs)
    lines = [origin_line(runs)]
    notes = {}
    for run in runs:
        label = LABELS[run.settings["algorithm"]]
        notes.setdefault(budget_note(run, paper_budget), []).append(label)
    for note, labels in notes.items():  # one, unless some runs are archived and some are not
        if note:
            lines.append(note if len(notes) == 1 else f"{', '.join(labels)}: {note}")
    if diverged:
        lines.append(f"{diverged} diverged trial{'s' if diverged > 1 else ''} left out.")
    return lines + refuted_lines(runs)


def refuted_lines(runs):
    """Where a bound on log Z refutes plain AIS: by how much at most, in a line or none."""
    found = []
    for run in runs:
        table = summarize(run)
        worst = table[table.refuted_by > 0]
        if len(worst):
            row = worst.loc[worst.refuted_by.idxmax()]
            label = LABELS[run.settings["algorithm"]]
            found.append(f"{label} at least {row.refuted_by:.0f} nats at epoch {row.epoch:g}")
    if not found:
        return []
    return [f"Plain AIS is refuted, its log-likelihood too high: {'; '.join(found)}."]


def origin_line(runs):
    """Device and date of runs, and whether they come from the archive."""
    places = []
    for archived in (False, True):
        own = [run for run in runs if run.archived == archived]
        if own:
            devices = sorted({run.provenance["device"] for run in own})
            dates = sorted({run.wall["finished"][:10] for run in own})
            when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
            places.append(f"{'archived runs: ' if archived else ''}{' and '.join(devices)}, {when}")
    return "; ".join(places)


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
                _logarithmic(axis)
            _name_ends(axis, runs, part, statistic)
    _legend(figure, axes[0, 0], published_curves is not None)
    settings = runs[0].settings
    how = GROUP_NAMES.get(group, group)
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units, {how}"
    _headline(figure, title, describe_runs(runs, paper_budget))
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


def _logarithmic(axis):
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))


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


def _legend(figure, axis, with_published):
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


def _headline(figure, title, lines):
    height = figure.get_figheight()
    top = 0.2 + 0.26 + 0.17 * len(lines)  # inches
    figure.tight_layout(rect=(0, 0.32 / height, 1, 1 - top / height))
    figure.text(0.01, 1 - 0.1 / height, title, fontsize=12, weight="bold", va="top")
    figure.text(0.01, 1 - 0.36 / height, "\n".join(lines), fontsize=8.5, color="0.3", va="top")


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
    _legend(figure, axes[0, 0], True)
    shared = runs[0].settings
    steps = sorted({(r.settings["n_inner_iterations"], r.settings["n_gibbs_steps"]) for r in runs})
    counts = ", ".join(f"K = {k}" if d == 1 else f"d = {d}, K′ = {k}" for d, k in steps)
    model = f"{title_of(shared['dataset'])}, {shared['n_hidden']} hidden units"
    title = f"{model}, {counts}, mean over trials"
    _headline(figure, title, describe_runs(runs, paper_budget))
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
            _logarithmic(axis)
        axes[0, column].set_title(choice(runs[0].settings), fontsize=9)
        axes[1, column].set_xlabel("epoch (logarithmic)")
    for row, part in enumerate(("train", "test")):
        axes[row, 0].set_ylabel(f"{part}: average log-likelihood (nats)")
        for axis, runs in zip(axes[row], variants, strict=True):
            _name_ends(axis, runs, part, "mean")  # once the shared limits are final
    _legend(figure, axes[0, 0], False)
    every = [run for runs in variants for run in runs]
    settings = variants[0][0].settings
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units: other choices"
    _headline(figure, title, describe_runs(every, paper_budget))
    return figure


def choice(settings):
    """The dataset and the batch size of a run, in words."""
    return f"{title_of(settings['dataset'])}, batch {settings['batch_size']}"


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
        for part in _parts(run):
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
        _logarithmic(axis)
        axis.set_xlabel("epoch (logarithmic)")
    axes[0, 0].set_ylabel("average log-likelihood (nats)")
    line = mpl.lines.Line2D
    handles = [line([], [], color="0.3", ls=dash, lw=1.5) for dash in dashes.values()]
    handles.append(line([], [], marker="*", color="red", mec="white", ms=11, lw=0))
    labels = ["train", "validation", "test", "test at the best epoch on validation"]
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8)
    settings = runs[0].settings
    title = f"{title_of(settings['dataset'])}, {settings['n_hidden']} hidden units: overfitting"
    _headline(figure, title, describe_runs(runs, paper_budget))
    return figure


def sample_grids(runs, images, image_shape, paper_budget, n_steps):
    """Figure 5: a grid of generated images for each algorithm.

    Parameters
    ----------
    images : list of ndarray or None, (n_images, m)
        For each run; None where no trial is left.
    """
    figure, axes = plt.subplots(1, len(runs), figsize=(2.1 * len(runs), 3.4))
    for axis, run, states in zip(np.atleast_1d(axes), runs, images, strict=True):
        axis.set_title(LABELS[run.settings["algorithm"]])
        axis.set_axis_off()
        if states is None:
            text = "diverged" if best_trial(run.curve) is None else "model not kept"
            axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)
            continue
        axis.imshow(tile(states, image_shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    n_images = max((len(states) for states in images if states is not None), default=0)
    settings = runs[0].settings
    title = f"{title_of(settings['dataset'])}: {n_images} images after {n_steps:,} Gibbs steps"
    lines = describe_runs(runs, paper_budget)
    if n_steps < paper_budget["samples"]["n_steps"]:
        lines.append(f"Gibbs steps reduced (paper: {paper_budget['samples']['n_steps']:,}).")
    _headline(figure, title, lines)
    return figure


def span(values, digits=1):
    """The smallest and the largest of numbers as text, or the one that both are."""
    texts = [f"{value:.{digits}f}" for value in (np.min(values), np.max(values))]
    return " … ".join(dict.fromkeys(texts))


def hidden_modes(measured, images, real, image_shape, title, lines):
    """What plain AIS does not see: likelihoods, the modes, and where chains end.

    Parameters
    ----------
    measured : DataFrame
        As ``modes.measure`` makes it.
    images : dict
        algorithm -> ndarray (1 + n, m): the mode, and the ends of n chains that began in noise.
    real : ndarray of uint8, (n, m), or None
        Test images; None where the data are not at hand.
    """
    names = list(dict.fromkeys(measured.algorithm))
    n = len(names)
    figure, (axis, pictures) = plt.subplots(
        1, 2, figsize=(13, 0.72 * n + 2.2), width_ratios=(1, 2.1), sharey=True
    )
    pictures.text(0, -0.6, "mode", fontsize=8)
    pictures.text(1.15, -0.6, "last states of chains that began in noise", fontsize=8)
    for row, name in enumerate(names):
        own, (color, marker) = measured[measured.algorithm == name], STYLES[name]
        highest = (own.trusted_test + own.trusted_log_z - own.bound).min()
        axis.plot(own.test, [row] * len(own), marker, mfc="white", color=color, ms=6)
        axis.plot(own.trusted_test, [row] * len(own), "x", color=color, ms=6)
        axis.plot(highest, row, "|", color="red", ms=16, mew=1.5)
        if refuted(own.log_z, own.bound).any():
            axis.plot([highest, own.test.max()], [row, row], color="red", lw=1, ls=":")
        mode, *ends = images[name]
        _strip(pictures, [mode], image_shape, 0, row)
        end = _strip(pictures, ends, image_shape, 1.15, row)
        shares = (100 * own[f].sum() / own.chains.sum() for f in ("from_images", "from_noise"))
        text = "ending in the mode:\n{:.0f} % from images\n{:.0f} % from noise".format(*shares)
        pictures.text(end + 0.15, row, text, va="center", fontsize=7.5)
    text, at = "real test images", end + 0.15
    if real is None:
        text, at = "real test images: the data are not at hand", 1.15
    else:
        _strip(pictures, real, image_shape, 1.15, n)
    pictures.text(at, n, text, va="center", fontsize=7.5)
    pictures.set(xlim=(0, end + 2.6), aspect="equal", anchor="W", frame_on=False, xticks=[])
    pictures.tick_params(left=False, labelleft=False)
    pictures.grid(False)
    axis.set(yticks=range(n), yticklabels=[LABELS[name] for name in names], ylim=(n + 0.5, -0.5))
    axis.set_xlabel("test: average log-likelihood (nats)")
    line = mpl.lines.Line2D
    handles = [
        line([], [], color="0.3", marker="o", mfc="white", lw=0),
        line([], [], color="0.3", marker="x", lw=0),
        line([], [], color="red", marker="|", ms=12, mew=1.5, lw=0),
    ]
    labels = ["plain AIS", "trusted estimate", "at most, by the bound on log Z"]
    figure.legend(handles, labels, loc="lower left", ncols=3, fontsize=8)
    _headline(figure, title, lines)
    return figure


def _strip(axis, images, image_shape, left, row):
    """Images (N, m) side by side from ``left``, around the height ``row``; where they end."""
    border = {"pad_width": 1, "constant_values": 0.5}
    picture = np.hstack([np.pad(v.reshape(image_shape).astype(float), **border) for v in images])
    right = left + 0.9 * picture.shape[1] / picture.shape[0]
    extent = (left, right, row + 0.45, row - 0.45)
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest", extent=extent)
    return right


def tile(images, image_shape, gap=0.5):
    """Images (N, m) as one square picture with grey gaps between them."""
    rows, columns = image_shape
    side = int(np.ceil(np.sqrt(len(images))))
    border = 1
    picture = np.full((side * (rows + border) + border, side * (columns + border) + border), gap)
    for index, image in enumerate(images):
        top = border + (index // side) * (rows + border)
        left = border + (index % side) * (columns + border)
        picture[top : top + rows, left : left + columns] = image.reshape(image_shape)
    return picture


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


def filters(snapshots, image_shape):
    """The weights of the first hidden units while a model learns, as images of the visible layer.

    Parameters
    ----------
    snapshots : dict
        As ``snapshots.load`` gives it.
    """
    shown = _some(len(snapshots["epoch"]))
    figure, axes = plt.subplots(1, len(shown), figsize=(2.3 * len(shown) + 0.8, 2.9), squeeze=False)
    weights = snapshots["filters"].astype(float)
    scale = np.abs(weights[shown]).max() or 1
    for axis, point in zip(axes[0], shown, strict=True):
        picture = tile(weights[point], image_shape, gap=np.nan)
        drawn = axis.imshow(picture, cmap="RdBu_r", vmin=-scale, vmax=scale)
        axis.set_title(f"epoch {snapshots['epoch'][point]:.4g}")
        axis.set_axis_off()
    figure.colorbar(drawn, ax=list(axes[0]), label="weight", shrink=0.7)
    return figure


def reconstructions(snapshots, image_shape):
    """Test images, and below them what a model makes of them while it learns: p(v | p(h | v))."""
    shown = _some(len(snapshots["epoch"]))
    rows = [snapshots["images"], *snapshots["reconstructions"][shown].astype(float)]
    names = ["test image", *(f"epoch {snapshots['epoch'][point]:.4g}" for point in shown)]
    n = len(snapshots["images"])
    figure, axes = plt.subplots(len(rows), 1, figsize=(0.75 * n + 1.2, 0.85 * len(rows)))
    for axis, images, name in zip(axes, rows, names, strict=True):
        _strip(axis, images, image_shape, 0, 0)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    figure.tight_layout()
    return figure


def _some(n, at_most=6):
    """Numbers of at most so many of ``n`` points: the first ones close, the last one always."""
    return np.unique(np.geomspace(1, n, min(n, at_most)).round().astype(int)) - 1


# ------------------------------------------------------------------- tuning and sensitivity


def sweep_curves(sweep):
    """Mean held-out curves of all settings of one algorithm."""
    figure, axis = plt.subplots(figsize=(8, 3.6))
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(sweep)))
    for run, color in zip(sweep, shades, strict=True):
        table = summarize(run, trusted=True)
        values = run.settings["hyperparameters"]
        label = ", ".join(
            f"{symbol} = {values[name]:g}" for name, symbol in SYMBOLS.items() if name in values
        )
        axis.plot(table.epoch, table.test_mean, color=color, lw=1.2, label=label)
    axis.set_xlabel("epoch")
    axis.set_ylabel("average log-likelihood (nats)")
    axis.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    return figure


def tuning_map(settings, title, lines):
    """Heat map of a tuning: area under the curve and final value of every setting.

    Parameters
    ----------
    settings : DataFrame
        As ``tuning.table`` makes it.
    """
    names = list(dict.fromkeys(settings.algorithm))
    dropped, doubts = settings.get("dropped", 0) != 0, settings.get("doubts", "") != ""
    refused = np.where(settings.diverged > 0, settings.diverged, -1 * (dropped | doubts))
    settings = settings.assign(diverged=refused)  # below 0: not outlined, either
    plain = settings[settings.epsilon.isna()]
    rates = sorted(plain.learning_rate.unique())
    scaled = settings[settings.epsilon.notna()]
    wide = max(5, 1.6 * scaled.learning_rate.nunique())
    figure, axes = plt.subplots(
        2, 2, figsize=(13, 5.6), width_ratios=(max(len(rates), 1), wide), squeeze=False
    )
    for row, (criterion, what) in enumerate((("area", "speed: area under"), ("final", "end of"))):
        stable = settings[settings.diverged <= 0]
        best = stable[criterion].max()
        bounds = best - max(best - stable[criterion].quantile(0.25), 1e-6), best
        plain_names = [n for n in names if n in set(plain.algorithm)]
        cells = plain.pivot(index="algorithm", columns="learning_rate", values=criterion)
        lost = plain.pivot(index="algorithm", columns="learning_rate", values="diverged")
        cells, lost = (table.reindex(plain_names)[rates] for table in (cells, lost))
        labels = [LABELS[n] for n in plain_names]
        axis = axes[row, 0]
        _heat(axis, cells, lost, bounds, [f"{r:g}" for r in rates], labels, by_row=True)
        axis.set_title(f"{what} the held-out curve (nats)")
        axis.set_xlabel("learning rate η")
        axis = axes[row, 1]
        cells = scaled.pivot(index="epsilon", columns="learning_rate", values=criterion)
        lost = scaled.pivot(index="epsilon", columns="learning_rate", values="diverged")
        labels = [f"{r:g}" for r in cells.columns], [f"ε = {e:g}" for e in cells.index]
        drawn = _heat(axis, cells, lost, bounds, *labels)
        axis.set_title(LABELS["sdcp_d"])
        axis.set_xlabel("learning rate η")
        figure.colorbar(drawn, ax=axis, label="nats", extend="min")
    note = "Outlined: the best of each algorithm. ✕: a trial diverged."
    if np.any(dropped):
        note += " Most settings ran for fewer epochs: the value when they were dropped."
    _headline(figure, f"Equal tuning: {title}", [*lines, note])
    return figure


def sensitivity_map(sweeps, tables):
    """Final value, speed and share of diverged trials of S-DCP-D over ε and λ_H.

    Parameters
    ----------
    sweeps, tables : dict
        group -> list of runs.Run, group -> DataFrame as ``tuning.table`` makes it.
    """
    figure, axes = plt.subplots(
        len(tables), 3, figsize=(11, 2.6 * len(tables) + 0.8), squeeze=False
    )
    measures = (("final", "final value (nats)"), ("area", "speed: area under the curve (nats)"))
    for row, (group, table) in zip(axes, tables.items(), strict=True):
        table = table.assign(share=table.diverged / table.trials)
        shares = table.pivot(index="lambda_hessian", columns="epsilon", values="share")
        labels = [f"{e:g}" for e in shares.columns], [f"{x:g}" for x in shares.index]
        rate = table.learning_rate.iloc[0]
        for axis, (name, title) in zip(row, measures, strict=False):
            cells = table.pivot(index="lambda_hessian", columns="epsilon", values=name)
            bounds = table[name].quantile(0.3), table[name].max()
            drawn = _heat(axis, cells, shares, bounds, *labels, outline=False)
            figure.colorbar(drawn, ax=axis, extend="min")
            axis.set_title(title)
        drawn = _heat(
            row[2], shares, shares * 0, (0, 1), *labels, outline=False, form="{:.0%}", cmap="Greys"
        )
        figure.colorbar(drawn, ax=row[2], format=mpl.ticker.PercentFormatter(1))
        row[2].set_title("share of diverged trials")
        for axis in row:
            axis.set_xlabel("ε")
        row[0].set_ylabel(f"η = {rate:g}\n({group.replace('_', ' ')})\nλ_H")
    first = next(iter(sweeps.values()))[0]
    s = first.settings
    trials = f"{s['trials']} trial{'s' if s['trials'] > 1 else ''}"
    lines = [f"{trials} × {s['epochs']:,g} epochs; {origin_line([first])}", "✕: a trial diverged."]
    name = title_of(s["dataset"])
    title = f"S-DCP-D over ε and λ_H: {name}, {s['n_hidden']} hidden units"
    _headline(figure, title, lines)
    return figure


def _heat(
    axis, cells, lost, bounds, columns, rows, by_row=False, outline=True, form="{:.2f}", cmap=None
):
    """Numbers as coloured cells; crossed out where trials diverged, the best outlined, of those
    that have 0 in ``lost``."""
    values, lost = cells.to_numpy(float), lost.to_numpy(float)
    low, high = bounds
    drawn = axis.imshow(
        values, cmap=cmap or "viridis", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
    )
    axis.grid(False)
    axis.set_xticks(range(len(columns)), columns, fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    dark = drawn.norm(np.nan_to_num(values, nan=low)) < 0.6
    dark = dark if cmap is None else ~dark
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "white" if dark[i, j] else "black"
            axis.text(j, i, form.format(value), ha="center", va="center", fontsize=6, color=color)
        if lost[i, j] > 0:
            axis.plot(j, i, "x", color="red", ms=13, mew=1.2)
    stable = np.where(lost != 0, -np.inf, np.nan_to_num(values, nan=-np.inf))
    if outline and np.isfinite(stable).any():
        best = [(i, row.argmax()) for i, row in enumerate(stable)]
        if not by_row:
            best = [np.unravel_index(stable.argmax(), stable.shape)]
        for i, j in best:
            frame = mpl.patches.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="red", lw=2)
            axis.add_patch(frame)
    return drawn


# ------------------------------------------------------------------------------- claims


def verdict_table(verdicts, measured, claims):
    """``claims.verdicts`` for readers, each with the measurement that decides it.

    Where a claim needs several, the one that is furthest on the side on which the claim fails.
    """
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    for row in verdicts.itertuples():
        same = (measured.id == row.id) & (measured.experiment == row.experiment)
        same &= measured.n_hidden.fillna(0) == (0 if pd.isna(row.n_hidden) else row.n_hidden)
        own, claim = measured[same], about[row.id]
        shown = {"no.": row.id, "claim": claim["claim"]}
        shown |= {
            "dataset": _where(row.experiment, row.n_hidden),
            "holds if": rule_text(claim),
            "paper": _paper(own, claim),
        }
        for setting, column in (("as published", "as published"), ("tuned", "tuned")):
            part = own[own.setting.isin([setting, ""])]
            shown[column] = _ours(_decisive(part, claim)) if len(part) else ""
        if (own.setting == "").all():
            shown["tuned"] = "same"
        rows.append(shown | {"verdict": row.verdict})
    return pd.DataFrame(rows)


def measurement_table(measured, claims):
    """``claims.judge`` for readers."""
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    for row in measured.itertuples():
        form = _share if judge.is_percentage(row.measure) else _number
        rows.append(
            {
                "no.": row.id,
                "dataset": _where(row.experiment, row.n_hidden),
                "of": ", ".join(part for part in (_against(row), row.part) if part),
                "setting": row.setting,
                "paper": form(row.paper) if pd.notna(row.paper) else "",
                "ours [95 % interval]": _ours(row, against=False),
                "trials": "exact" if np.isinf(row.trials) else f"{row.trials:.0f}",
                "holds if": rule_text(about[row.id]),
                "outcome": row.outcome,
                "note": row.note if row.trials else "",
            }
        )
    return pd.DataFrame(rows)


def _decisive(own, claim, column="ours"):
    """The row whose measurement speaks most against the claim; if none was measured, the one that
    makes the outcome."""
    known = own[own[column].notna()]
    if known.empty:
        return own[own.outcome == judge.together(set(own.outcome))].iloc[0]
    ((how, bound),) = claim["holds_if"].items()
    if how == "between":
        return known.loc[(known[column] - np.mean(bound)).abs().idxmax()]
    return known.loc[known[column].idxmin() if how == "above" else known[column].idxmax()]


def _ours(row, against=True):
    form = _share if judge.is_percentage(row.measure) else _number
    if not row.trials:
        return row.note
    text = form(row.ours)
    if row.trials > 1 and row.low != row.high:
        text += f" [{form(row.low)}, {form(row.high)}]"
    return f"{text} {_against(row)}".rstrip() if against else text


def _paper(own, claim):
    form = _share if judge.is_percentage(claim["measure"]) else _number
    row = _decisive(own, claim, "paper")
    return f"{form(row.paper)} {_against(row)}".rstrip() if pd.notna(row.paper) else ""


def _against(row):
    one = "" if row.one == "sdcp_d" else f"{LABELS[row.one]} "
    other = f"{one}vs {LABELS[row.other]}" if row.other else ""
    return ", ".join(part for part in (other, row.detail) if part)


def rule_text(claim):
    """The rule of a claim in a few words."""
    ((how, bound),) = claim["holds_if"].items()
    form = _share if judge.is_percentage(claim["measure"]) else _number
    if how == "between":
        return f"between {form(bound[0])} and {form(bound[1])}"
    return f"{how} {form(bound)}"


def _where(experiment, n_hidden):
    names = {"enumeration": "by enumeration", "large": "large datasets", "caltech": "CalTech"}
    names |= {"kannada": "Kannada-MNIST"}
    name = names.get(experiment) or title_of(experiment)
    small = experiment == "bars_and_stripes" and pd.notna(n_hidden)
    return f"{name}, {int(n_hidden)} hidden" if small else name


def _share(value):
    return "never" if value == -np.inf else f"{100 * value:.0f} %".replace("-", "−")


def _number(value):
    return "diverges" if value == np.inf else f"{value:.2f}".replace("-", "−")
