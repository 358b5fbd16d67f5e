"""Maps and curves of sweeps over hyperparameters: equal tuning, sensitivity to ε and λ_H."""

import numpy as np
import pandas as pd

from ..algorithms import LABELS
from ..study.compare import summarize
from ..study.tuning import SYMBOLS
from .captions import model_of, origin_line
from .style import NATS, headline, mpl, plt


def sweep_curves(sweep):
    """Mean held-out curves of all settings of one algorithm."""
    figure, axis = plt.subplots(figsize=(8, 3.6))
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(sweep)))
    for run, color in zip(sweep, shades, strict=True):
        table = summarize(run, trusted=True)
        values = run.settings["hyperparameters"]
        label = ", ".join(f"{SYMBOLS[n]} = {values[n]:g}" for n in SYMBOLS if n in values)
        axis.plot(table.epoch, table.test_mean, color=color, lw=1.2, label=label)
    axis.set(xlabel="epoch", ylabel=NATS)
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
    table = settings.astype({"algorithm": pd.CategoricalDtype(LABELS)})
    plain, scaled = table[table.epsilon.isna()], table[table.epsilon.notna()]
    widths = max(plain.learning_rate.nunique(), 1), max(5, 1.6 * scaled.learning_rate.nunique())
    figure, axes = plt.subplots(2, 2, figsize=(13, 5.6), width_ratios=widths)
    stable = settings[settings.diverged == 0]
    eligible = stable[(stable.dropped == 0) & (stable.doubts == "")]
    criteria = {"area": "speed: area under", "final": "end of"}
    for (left, right), (criterion, what) in zip(axes, criteria.items(), strict=True):
        highest = stable[criterion].max()
        bounds = min(stable[criterion].quantile(0.25), highest - 1e-6), highest
        best = eligible.dropna(subset=criterion).groupby("algorithm")[criterion].idxmax()
        places = "algorithm", "learning_rate"
        _heat(left, plain, places, criterion, bounds, LABELS.get, best)
        left.set(title=f"{what} the held-out curve (nats)", xlabel="learning rate η")
        places = "epsilon", "learning_rate"
        drawn = _heat(right, scaled, places, criterion, bounds, "ε = {:g}".format, best)
        right.set(title=LABELS["sdcp_d"], xlabel="learning rate η")
        figure.colorbar(drawn, ax=right, label="nats", extend="min")
    note = "Outlined: the best of each algorithm. ✕: a trial diverged."
    if settings.dropped.any():
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
    titles = {"final": "final value (nats)", "area": "speed: area under the curve (nats)"}
    titles["share"] = "share of diverged trials"
    for row, (group, table) in zip(axes, tables.items(), strict=True):
        table = table.assign(share=table.diverged / table.trials)
        for axis, (value, title) in zip(row, titles.items(), strict=True):
            bounds, bar = (table[value].quantile(0.3), table[value].max()), {"extend": "min"}
            if value == "share":
                bounds, bar = (0, 1), {"format": mpl.ticker.PercentFormatter(1)}
            drawn = _heat(axis, table, ("lambda_hessian", "epsilon"), value, bounds)
            figure.colorbar(drawn, ax=axis, **bar)
            axis.set(title=title, xlabel="ε")
        rate = table.learning_rate.iloc[0]
        row[0].set_ylabel(f"η = {rate:g}\n({group.replace('_', ' ')})\nλ_H")
    run = next(iter(sweeps.values()))[0]
    n = run.settings["trials"]
    budget = f"{n} trial{'s' if n > 1 else ''} × {run.settings['epochs']:,g} epochs"
    lines = [f"{budget}; {origin_line([run])}", "✕: a trial diverged."]
    headline(figure, f"S-DCP-D over ε and λ_H: {model_of(run)}", lines)
    return figure


def _heat(axis, table, places, value, bounds, row_name="{:g}".format, outlined=()):
    """A column of a table of settings as coloured cells, crossed out where trials diverged.

    ``places`` are the columns that give a cell's row and column, ``bounds`` the ends of the
    colours, ``outlined`` the index of the settings in a frame. ``value`` is in nats, or "share".
    """
    cells = table.pivot(index=places[0], columns=places[1], values=value)
    share = value == "share"
    (low, high), cmap = bounds, "Greys" if share else "viridis"
    how = {"aspect": "auto", "interpolation": "nearest"}
    drawn = axis.imshow(cells.to_numpy(float), cmap, vmin=low, vmax=high, **how)
    axis.grid(False)
    axis.set_xticks(range(cells.shape[1]), map("{:g}".format, cells.columns), fontsize=7)
    axis.tick_params("x", rotation=90)
    axis.set_yticks(range(cells.shape[0]), map(row_name, cells.index), fontsize=8)
    for label, setting in table.iterrows():
        i, j = (axis_of.get_loc(setting[n]) for axis_of, n in zip(cells.axes, places, strict=True))
        number = setting[value]
        if np.isfinite(number):
            color = "white" if (drawn.norm(number) < 0.6) != share else "black"
            text = f"{number:.0%}" if share else f"{number:.{2 if abs(number) < 100 else 0}f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=6, color=color)
        if setting.diverged > 0 and not share:
            axis.plot(j, i, "x", color="red", ms=13, mew=1.2)
        if label in set(outlined):
            frame = mpl.patches.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec="red", lw=2)
            axis.add_patch(frame)
    return drawn
