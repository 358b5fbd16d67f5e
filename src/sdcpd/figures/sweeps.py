"""Maps and curves of sweeps over hyperparameters: equal tuning, sensitivity to ε and λ_H."""

import numpy as np

from ..algorithms import LABELS
from ..data import title_of
from ..study.compare import summarize
from ..study.tuning import SYMBOLS
from .captions import origin_line
from .style import headline, mpl, plt


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
    headline(figure, f"Equal tuning: {title}", [*lines, note])
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
    headline(figure, title, lines)
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
