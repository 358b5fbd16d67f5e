"""The choice of hyperparameters: the settings of all algorithms, and the best by two criteria.

Speed is the area under the held-out likelihood curve, the final value its end, both as the mean
over trials. A setting in which a trial diverged, or whose log Z is doubtful, is not chosen.

With ``rounds`` a sweep is successive halving: [[8, 5], [24, 2]] means that after 8 epochs the best
5 settings go on, after 24 epochs the best 2, and besides one more, see ``kept``.
"""

import numpy as np
import pandas as pd
import yaml

from .. import ROOT, engines, runs
from ..algorithms import LABELS
from ..experiments import CONFIG, TUNED, step_matched
from ..files import whole_file
from . import compare

_BY = ("area", "final")
CRITERIA = dict(zip(TUNED, _BY, strict=True))
SYMBOLS = {"learning_rate": "η", "epsilon": "ε", "lambda_hessian": "λ_H"}
VALUES = tuple(SYMBOLS)


def execute(settings, folder, backend_name="auto", data_folder=ROOT / "data"):
    """Make the sweep of one algorithm, in rounds if it has any, and write its file.

    Parameters
    ----------
    settings : dict
        As for ``runs.execute_sweep``, and perhaps ``rounds``, a list of [epochs, settings that go
        on].
    folder : path
        Of the sweep; checkpoints go there, too. With ``rounds`` they are of each setting, so that
        one that goes on is prolonged; on a GPU those of a round are trained side by side, anew in
        each.

    Returns
    -------
    list of runs.Run
        One a setting, without models, as long as each ran.
    """
    rounds = settings.get("rounds")
    if not rounds:
        return runs.execute_sweep(settings, folder, backend_name, data_folder)
    grid, epochs = settings["hyperparameters"], settings["epochs"]
    of_each = {name: value for name, value in settings.items() if name != "rounds"}
    where = {"backend_name": backend_name, "data_folder": data_folder, "checkpoints_in": folder}
    on_gpu = engines.select(backend_name).name.startswith("cupy")
    found, going_on = {}, [*range(len(grid))]
    for end, n in [*rounds, [epochs, 0]]:
        values = [grid[i] for i in going_on]
        of_round = of_each | {"epochs": end, "hyperparameters": values}
        if on_gpu:
            made = runs.execute_sweep(of_round, None, **where) if values else []
        else:
            each = [of_round | {"hyperparameters": one} for one in values]
            made = [runs.execute(one, None, **where) for one in each]
        found |= zip(going_on, [run._replace(theta=None) for run in made], strict=True)
        going_on = kept(table([[found[i] for i in going_on]]), n, going_on) if n else going_on
    sweep = [found[i] for i in range(len(grid))]
    changes = {"epochs": epochs, "rounds": rounds}
    runs.save_sweep(sweep, folder, runs.sum_of([run.wall for run in sweep]), **changes)
    return [run._replace(settings=run.settings | changes) for run in sweep]


def kept(settings, n, numbers):
    """Which settings of a round go on.

    The best by area and the best by final value alternately, until there are ``n``; and of the
    others, as what is slow at first may be best in the end, that with the smallest step, which for
    S-DCP-D is η/(¼ + ε).

    Parameters
    ----------
    settings : DataFrame
        As ``table`` makes it, of the round.
    n : int
    numbers : sequence
        What the rows of ``settings`` are called.

    Returns
    -------
    list
        ``n`` + 1 of ``numbers``, in their order; fewer where fewer can be judged.
    """
    able = _able(settings)
    orders = [able.sort_values(name, ascending=False, kind="stable").index for name in _BY]
    best = dict.fromkeys(row for pair in zip(*orders, strict=True) for row in pair)
    chosen = [*best][:n]
    others = able.drop(chosen)
    steps = others.learning_rate / (0.25 + others.epsilon).fillna(1)
    chosen += [steps.idxmin()] if len(steps) else []
    return [numbers[row] for row in sorted(chosen)]


def _rounds(settings):
    return settings.get("rounds") or []


def _able(settings):
    """The settings that can be judged, as far as they have been trained."""
    return settings[(settings.diverged == 0) & (settings.doubts == "")]


def table(sweeps, published=None):
    """One row for each setting of each algorithm.

    Parameters
    ----------
    sweeps : list of list of runs.Run
        As ``runs.load_sweep`` reads them.
    published : DataFrame, optional
        epoch, algorithm and avg_loglik of published mean curves.

    Returns
    -------
    DataFrame
        algorithm, learning_rate, epsilon, lambda_hessian, trials, epochs (how many it ran),
        dropped (after which round, counted from 1; 0: none), diverged (a count), doubts (why
        its likelihoods are not to be judged; empty where they may be); area, final
        and their standard errors area_se, final_se (NaN with one trial), of the trials that did not
        diverge; distance, the root-mean-square distance of the mean curve to the published one
        where both are known, on the training images.
    """
    rows = []
    for run in (run for sweep in sweeps for run in sweep):
        settings = run.settings
        area, final = compare.areas(run), compare.finals(run)
        alive = np.isfinite(final)
        row = {"algorithm": settings["algorithm"]}
        row |= {name: settings["hyperparameters"].get(name) for name in VALUES}
        ran = run.curve.epoch.max()
        row |= {"trials": len(final), "epochs": ran, "dropped": _dropped(run, ran)}
        row["diverged"] = int((~alive).sum())
        row["doubts"] = compare.doubts(run)
        for name, values in (("area", area[alive]), ("final", final[alive])):
            n = len(values)
            row[name] = values.mean() if n else np.nan
            row[f"{name}_se"] = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        row["distance"] = _distance(run, published) if alive.any() else np.nan
        rows.append(row)
    return pd.DataFrame(rows).astype({name: float for name in VALUES})


def _dropped(run, ran):
    """The round after which a setting that ran so many epochs did not go on; 0 for none."""
    rounds, update = _rounds(run.settings), run.curve["update"].max()
    if not rounds or not ran:  # diverged at the start
        return len(rounds[:1])
    ends = [end for end, _ in rounds] + [run.settings["epochs"]]
    ends = [round(end * update / ran) for end in ends]  # after a whole number of updates
    return 0 if update >= ends[-1] else sum(update > end for end in ends) + 1


def _distance(run, published):
    if published is None:
        return np.nan
    own = published[published.algorithm == run.settings["algorithm"]]
    epochs, values = compare.curves(run, "train")
    own = own[own.epoch <= epochs[-1]]
    if own.empty:
        return np.nan
    ours = np.interp(own.epoch, epochs, np.nanmean(values, 0))
    return float(np.sqrt(np.mean((ours - own.avg_loglik) ** 2)))


def choose(settings, n_inner_iterations):
    """The best setting of each algorithm by each criterion, and the step-matched baselines.

    Parameters
    ----------
    settings : DataFrame
        As ``table`` makes it.
    n_inner_iterations : int
        d of S-DCP-D.

    Returns
    -------
    dict
        group -> algorithm -> values, as in hyperparameters.yaml.
    """
    stable = _able(settings[settings.dropped == 0])
    groups = {}
    for group, criterion in CRITERIA.items():
        best = stable.loc[stable.groupby("algorithm")[criterion].idxmax()]
        best = best.sort_values("algorithm", key=lambda names: names.map([*LABELS].index))
        groups[group] = {
            row.algorithm: {n: float(getattr(row, n)) for n in VALUES if pd.notna(getattr(row, n))}
            for row in best.itertuples()
        }
    fast = groups["tuned_speed"].get("sdcp_d")
    groups["step_matched"] = step_matched(fast, n_inner_iterations) if fast else {}
    return groups


def at_edge(settings, algorithm, values):
    """Names of the values at an end of the grid: a better one may lie beyond."""
    own = settings[settings.algorithm == algorithm]
    edges = {n: (own[n].min(), own[n].max()) for n in values if own[n].nunique() > 1}
    return [n for n, ends in edges.items() if values[n] in ends]


_BEGIN = "  # ---- chosen by notebooks/tune.ipynb, written by the target adopt: do not edit ----\n"


def origin(sweeps):
    """What was swept, on what and when, in a line."""
    run = sweeps[0][0]
    s, device = run.settings, run.provenance["device"]
    counts = "/".join(dict.fromkeys(str(len(sweep)) for sweep in sweeps))
    trials = f"{s['trials']} trial{'s' if s['trials'] > 1 else ''}"
    rounds = "".join(f"{end:,g} (best {n} and the smallest step go on), " for end, n in _rounds(s))
    return (
        f"{counts} settings each × {trials} × {rounds}{s['epochs']:,g} epochs, seed {s['seed']}, "
        f"{device}, {run.wall['finished'][:10]}"
    )


def adopt(tunings, path=CONFIG / "hyperparameters.yaml"):
    """Write what is chosen, with its evidence, as the last part of hyperparameters.yaml.

    Parameters
    ----------
    tunings : dict
        ``experiment_NNh`` -> sweeps of all algorithms, as for ``table``.
    """
    by_hand, _, _ = path.read_text(encoding="utf-8").partition(_BEGIN)
    lines = [_BEGIN, *(f"  # {name}: {origin(sweeps)}\n" for name, sweeps in tunings.items())]
    tables = {name: table(sweeps) for name, sweeps in tunings.items()}
    chosen = {name: choose(tables[name], n_inner(sweeps)) for name, sweeps in tunings.items()}
    for group in (*CRITERIA, "step_matched"):
        lines.append(f"  {group}:\n")
        for name, groups in chosen.items():
            lines.append(f"    {name}:\n")
            for algorithm, values in groups[group].items():
                entry = yaml.safe_dump(values, default_flow_style=True, sort_keys=False).strip()
                why = _evidence(tables[name], group, algorithm, values)
                lines.append(f"      {algorithm}: {entry} # {why}\n")
    with whole_file(path) as file:
        file.write(by_hand.rstrip("\n") + "\n\n" + "".join(lines))


def n_inner(sweeps):
    """d of S-DCP-D among these sweeps; 1 without it."""
    return max(sweep[0].settings["n_inner_iterations"] for sweep in sweeps)


def _evidence(settings, group, algorithm, values):
    if group not in CRITERIA:
        return "learning rates of S-DCP-D's smallest step"
    own = settings[settings.algorithm == algorithm]
    row = own[np.all([own[name] == value for name, value in values.items()], 0)].iloc[0]
    edge = at_edge(settings, algorithm, values)
    note = f"; {', '.join(edge)} at the edge of the grid" if edge else ""
    return f"best of {len(own)}: area {row.area:.3f}, final {row.final:.3f}{note}"


def describe(settings):
    """The table with the labels of the paper and numbers as text, for readers."""
    shown = settings.assign(algorithm=settings.algorithm.map(LABELS))
    for name in VALUES:
        shown[name] = [f"{v:g}" if pd.notna(v) else "" for v in shown[name]]
    for name in ("area", "final"):
        errors = zip(shown[name], shown[f"{name}_se"], strict=True)
        texts = [f"{v:.3f}" + (f" ± {e:.3f}" if e == e else "") for v, e in errors]
        shown[name] = ["" if text == "nan" else text for text in texts]
    shown["epochs"] = [f"{epochs:,g}" for epochs in shown.epochs]
    shown["dropped"] = [f"round {number}" if number else "" for number in shown.dropped]
    shown["diverged"] = [f"{d} of {n}" for d, n in zip(shown.diverged, shown.trials, strict=True)]
    shown["distance"] = [f"{v:.2f}" if pd.notna(v) else "" for v in shown.distance]
    columns = ["algorithm", *VALUES, "epochs", "dropped", "diverged", "area", "final", "distance"]
    columns += ["doubts"]
    return shown[columns].rename(columns=SYMBOLS)
