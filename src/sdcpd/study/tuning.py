"""The choice of hyperparameters: the settings of all algorithms, and the best by two criteria.

Speed is the area under the held-out likelihood curve, the final value its end, both as the mean
over trials. A setting in which a trial diverged, or whose log Z is doubtful, is not chosen.

With ``rounds`` a sweep is successive halving: [[2, 6], [8, 4]] means that after 2 epochs 6 settings
go on, after 8 epochs 4, see ``kept``; when these have ended one more does, see ``next_smaller``.
"""

import numpy as np
import pandas as pd
import yaml

from .. import ROOT, engines, runs
from ..algorithms import LABELS
from ..experiments import BY_TUNING, CONFIG, TUNED, smallest_step, step_matched
from ..files import whole_file
from . import compare

CRITERIA = dict(zip(TUNED, ("area", "final"), strict=True))
SYMBOLS = {"learning_rate": "η", "epsilon": "ε", "lambda_hessian": "λ_H"}
VALUES = [*SYMBOLS]


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
    if not _rounds(settings):
        return runs.execute_sweep(settings, folder, backend_name, data_folder)
    grid, changes = settings["hyperparameters"], {n: settings[n] for n in ("epochs", "rounds")}
    without_rounds = {name: value for name, value in settings.items() if name != "rounds"}
    where = {"backend_name": backend_name, "data_folder": data_folder, "checkpoints_in": folder}
    on_gpu = engines.select(backend_name).name.startswith("cupy")
    found, going_on = {}, [*range(len(grid))]

    def train(numbers, epochs):
        values = [grid[i] for i in numbers]
        of_round = without_rounds | {"epochs": epochs, "hyperparameters": values}
        if on_gpu:
            made = runs.execute_sweep(of_round, None, **where) if values else []
        else:
            of_each = [of_round | {"hyperparameters": each} for each in values]
            made = [runs.execute(each, None, **where) for each in of_each]
        found.update(zip(numbers, [run._replace(theta=None) for run in made], strict=True))

    def as_it_is():
        return [found[i]._replace(settings=found[i].settings | changes) for i in range(len(grid))]

    for last, n in settings["rounds"]:
        train(going_on, last)
        going_on = kept(table([[found[i] for i in going_on]]), n, going_on)
    train(going_on, settings["epochs"])
    train(next_smaller(table([as_it_is()])), settings["epochs"])
    sweep = as_it_is()
    runs.save_sweep(sweep, folder, runs.sum_of([run.wall for run in sweep]))
    return sweep


def kept(settings, n, numbers):
    """Which settings of a round go on.

    Half of them are the best by area. Which is best in the end early values do not tell: on CalTech
    steps that are slow at first get the fewest modes far from the data. So the other half are, at
    equal distances in their order, of those with a smaller step than the best; for S-DCP-D that is
    η/(¼ + ε).

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
        ``n`` of ``numbers``, in their order; fewer where fewer can be judged.
    """
    able = _able(settings).sort_values("area", ascending=False, kind="stable")
    steps = _steps(able)
    fastest, others = able.index[: n - n // 2], steps.iloc[n - n // 2 :]
    smaller = others[others < steps.iloc[:1].min()].sort_values(kind="stable").index
    size = min(n // 2, len(smaller))
    spaced = [smaller[(2 * i + 1) * len(smaller) // (2 * size)] for i in range(size)]
    in_order = dict.fromkeys([*fastest, *spaced, *able.index])  # the last where others are few
    return [numbers[row] for row in sorted([*in_order][:n])]


def next_smaller(settings):
    """Which setting goes on when the others have ended: of those that were dropped the one with the
    largest step below that of the best in the end, which else could lie at the edge of what was
    trained to the end for no other reason than ``kept``.

    Parameters
    ----------
    settings : DataFrame
        As ``table`` makes it, of one algorithm.

    Returns
    -------
    list
        Its row, or nothing.
    """
    able = _able(settings)
    steps, ended = _steps(able), able.final[able.dropped == 0]
    if ended.empty:
        return []
    smaller = steps[(able.dropped > 0) & (steps < steps[ended.idxmax()])]
    return [] if smaller.empty else [smaller.idxmax()]


def _steps(settings):
    """The learning rates; of S-DCP-D the smallest step."""
    return smallest_step(settings).fillna(settings.learning_rate)


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
        where both are known, on the training images and by plain AIS, as published.
    """
    rows = []
    for run in (run for sweep in sweeps for run in sweep):
        settings, ran = run.settings, run.curve.epoch.max()
        finals = compare.finals(run)
        alive = np.isfinite(finals)
        area, final = pd.Series(compare.areas(run)[alive]), pd.Series(finals[alive])
        row = {"algorithm": settings["algorithm"]}
        row |= {name: settings["hyperparameters"].get(name) for name in VALUES}
        row |= {"trials": len(alive), "epochs": ran, "dropped": _dropped(run, ran)}
        row |= {"diverged": int((~alive).sum()), "doubts": compare.doubts(run)}
        row |= {"area": area.mean(), "area_se": area.sem()}
        row |= {"final": final.mean(), "final_se": final.sem()}
        rows.append(row | {"distance": _distance(run, published) if alive.any() else np.nan})
    return pd.DataFrame(rows).astype({name: float for name in VALUES})


def _dropped(run, ran):
    """The round after which a setting that ran so many epochs did not go on; 0 for none."""
    rounds, update = _rounds(run.settings), run.curve["update"].max()
    if not rounds or not ran:  # diverged at the start
        return len(rounds[:1])
    epochs = [last for last, _ in rounds] + [run.settings["epochs"]]
    updates = [round(last * update / ran) for last in epochs]  # after a whole number of updates
    return 0 if update >= updates[-1] else sum(update > last for last in updates) + 1


def _distance(run, published):
    if published is None:
        return np.nan
    ours = run.curve[run.curve.status == "ok"].groupby("epoch").train.mean().dropna()
    theirs = published[published.algorithm == run.settings["algorithm"]]
    theirs = theirs[theirs.epoch <= ours.index[-1]]
    if theirs.empty:
        return np.nan
    ours = np.interp(theirs.epoch, ours.index, ours)
    return float(np.sqrt(np.mean((ours - theirs.avg_loglik) ** 2)))


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
        best = stable.loc[stable.groupby("algorithm")[criterion].idxmax()].set_index("algorithm")
        best = best.loc[[name for name in LABELS if name in best.index], VALUES]
        groups[group] = {name: row.dropna().to_dict() for name, row in best.iterrows()}
    fast = groups["tuned_speed"].get("sdcp_d")
    groups["step_matched"] = step_matched(fast, n_inner_iterations) if fast else {}
    return groups


def at_edge(settings, algorithm, values):
    """Names of the values at an end of the grid: a better one may lie beyond."""
    grid = settings[settings.algorithm == algorithm]
    edges = {n: (grid[n].min(), grid[n].max()) for n in values if grid[n].nunique() > 1}
    return [name for name, edge in edges.items() if values[name] in edge]


_BEGIN = "  # ---- chosen by notebooks/tune.ipynb, written by the target adopt: do not edit ----\n"


def origin(sweeps):
    """What was swept, on what and when, in a line."""
    run = sweeps[0][0]
    s, device = run.settings, run.provenance["device"]
    counts = "/".join(dict.fromkeys(str(len(sweep)) for sweep in sweeps))
    trials = f"{s['trials']} trial{'s' if s['trials'] > 1 else ''}"
    dropped = [_dropped(run, run.curve.epoch.max()) for run in sweeps[0]]
    rounds = ""
    for number, (last, _) in enumerate(_rounds(s), 1):
        rounds += f"{last:,g} ({sum(not d or d > number for d in dropped)} go on), "
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
    groups = {name: choose(tables[name], n_inner(sweeps)) for name, sweeps in tunings.items()}
    for group in BY_TUNING:
        lines.append(f"  {group}:\n")
        for name, of_size in groups.items():
            lines.append(f"    {name}:\n")
            for algorithm, values in of_size[group].items():
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
    grid = settings[settings.algorithm == algorithm]
    row = grid[np.all([grid[name] == value for name, value in values.items()], 0)].iloc[0]
    edge = at_edge(settings, algorithm, values)
    note = f"; {', '.join(edge)} at the edge of the grid" if edge else ""
    return f"best of {len(grid)}: area {row.area:.3f}, final {row.final:.3f}{note}"


def describe(settings):
    """The table with the labels of the paper and numbers as text, for readers."""
    shown = settings.assign(algorithm=settings.algorithm.map(LABELS))
    forms = dict.fromkeys(VALUES, "{:g}") | {"epochs": "{:,g}", "distance": "{:.2f}"}
    for name, form in forms.items():
        shown[name] = [form.format(v) if pd.notna(v) else "" for v in shown[name]]
    for name in CRITERIA.values():
        errors = [f" ± {e:.3f}" if pd.notna(e) else "" for e in shown[f"{name}_se"]]
        texts = [f"{v:.3f}" if pd.notna(v) else "" for v in shown[name]]
        shown[name] = [text + error for text, error in zip(texts, errors, strict=True)]
    shown["dropped"] = [f"round {number}" if number else "" for number in shown.dropped]
    shown["diverged"] = [f"{d} of {n}" for d, n in zip(shown.diverged, shown.trials, strict=True)]
    columns = ["algorithm", *VALUES, "epochs", "dropped", "diverged", "area", "final", "distance"]
    return shown[[*columns, "doubts"]].rename(columns=SYMBOLS)
