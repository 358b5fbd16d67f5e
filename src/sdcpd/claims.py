"""The verdict on each claim of the paper, from run files, by the rules in claims.yaml.

A measure is a number with its interval over trials (``compare.Estimate``). A claim holds where the
whole interval satisfies its rule, fails where none of it does, and is undecided else. It is judged
with the hyperparameters that best explain the published curves, and again with those that every
algorithm was tuned to; runs of a smaller budget than the paper's judge nothing.
"""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from . import compare, sampling
from .algorithms import LABELS
from .backend import key
from .compare import Estimate
from .data import bars_and_stripes
from .engine import PLAIN

AS_PUBLISHED = "as_published"
MIN_TRIALS = 4  # below, no interval is worth the name
SAMPLES = 100  # images of each trial, for the share of valid patterns
STEPS = 200  # Gibbs steps from a random state, as in the paper


class NotRun(Exception):
    """What a claim needs has not been run, or with a smaller budget; the message says what."""


class Evidence(NamedTuple):
    """Everything that claims are judged by."""

    runs: dict  # (experiment, n_hidden, group) -> algorithm -> runs.Run
    sweeps: dict  # (experiment, n_hidden, kind) -> algorithm -> list of runs.Run
    quality: dict  # (experiment, n_hidden, group) -> DataFrame of quality.measure
    seconds: dict  # dataset as in Table 1 -> algorithm -> ndarray (trials,)
    checks: pd.DataFrame  # the table of the notebook validation
    published: pd.DataFrame  # the published curves
    table1: pd.DataFrame  # the published Table 1
    figures: dict  # experiment -> number of its figure
    budgets: dict  # what it must have: experiment, or (experiment, kind of sweep) -> epochs, and
    # (experiment, "quality") -> generated images
    seed: int

    def run(self, on, algorithm, group):
        """A run with the paper's number of epochs and enough trials."""
        try:
            run = self.runs[on["experiment"], on["n_hidden"], group][algorithm]
        except KeyError:
            raise NotRun(f"{group} not run") from None
        trials = run.settings["trials"]
        if run.settings["epochs"] < self.budgets[on["experiment"]] or trials < MIN_TRIALS:
            trials = f"{trials} trial{'s' if trials > 1 else ''}"
            epochs = f"{run.settings['epochs']:.10g} of {self.budgets[on['experiment']]:,}"
            raise NotRun(f"run with {trials} × {epochs} epochs only")
        if doubts := compare.doubts(run):
            raise NotRun(doubts)
        return run

    def sweep(self, on, algorithm, kind):
        """A sweep with the number of epochs that the study gives it."""
        try:
            sweep = self.sweeps[on["experiment"], on["n_hidden"], kind][algorithm]
        except KeyError:
            raise NotRun(f"{kind} not run") from None
        epochs = sweep[0].settings["epochs"]
        needed = self.budgets[on["experiment"], kind.partition("_")[0]]
        if epochs < needed:
            raise NotRun(f"{kind} run with {epochs:.10g} of {needed:,} epochs only")
        if doubts := next(filter(None, map(compare.doubts, sweep)), ""):
            raise NotRun(doubts)
        return sweep


# ------------------------------------------------------------------------------ measures
# measure(evidence, on, group) -> Estimate;  on: where, from claims.yaml, with one ``other``.


def failed_checks(evidence, on, group):
    """Number of checks of the notebook validation, of those named, that do not hold."""
    named = evidence.checks[evidence.checks.statement.str.contains(on["checks"])]
    if named.empty:
        raise NotRun("not checked")
    return _exact((named.holds != "yes").sum(), len(named))


def time_ratio(evidence, on, group):
    """Seconds of training, one algorithm over the other."""
    if on["timed"] not in evidence.seconds:
        raise NotRun("not timed")
    seconds = evidence.seconds[on["timed"]]
    if not {on["one"], on["other"]} <= set(seconds):
        raise NotRun("not timed")
    return compare.ratio(seconds[on["one"]], seconds[on["other"]])


def epochs_saved(evidence, on, group):
    """1 − (epoch of S-DCP-D / of the other), at the level that the other reaches at its best."""
    fast = evidence.run(on, "sdcp_d", group)
    slow = evidence.run(on, on["other"], on.get("other_group", group))
    return compare.saved(fast, slow, on["part"])


def range_of_finals(evidence, on, group):
    """Largest minus smallest mean final log-likelihood of the five algorithms (nats)."""
    finals = [compare.finals(evidence.run(on, name, group), on["part"]) for name in LABELS]
    return compare.range_of_means(finals)


def maximum(evidence, on, group):
    """The highest log-likelihood of all trials and evaluations (nats)."""
    return compare.maximum(compare.maxima(evidence.run(on, on["one"], group), on["part"]))


def final_difference(evidence, on, group):
    """Final log-likelihood of S-DCP-D minus that of the other (nats)."""
    return _pairs(compare.difference, compare.finals, evidence, on, group)


def area_difference(evidence, on, group):
    """Mean log-likelihood over all epochs of S-DCP-D minus that of the other (nats)."""
    return _pairs(compare.difference, compare.areas, evidence, on, group)


def roughness_ratio(evidence, on, group):
    """Standard deviation of second differences, S-DCP-D over the other."""
    return _pairs(compare.ratio, compare.roughness, evidence, on, group)


def spread_ratio(evidence, on, group):
    """Standard deviation over trials of the final log-likelihood, S-DCP-D over the other."""
    return _pairs(compare.ratio, compare.finals, evidence, on, group, compare.spread)


def range_over_epsilon(evidence, on, group):
    """Largest minus smallest mean over ε, λ_H = 0, where no trial diverged (nats)."""
    sweep = _over_epsilon(evidence, on, group)
    values = [compare.finals(run, on["part"]) for run in sweep]
    return compare.range_of_means([v for v in values if np.isfinite(v).all()])


def diverged_over_epsilon(evidence, on, group):
    """Share of the trials that diverged, over all ε, λ_H = 0."""
    return compare.mean(_diverged(_over_epsilon(evidence, on, group)))


def diverged_in_grid(evidence, on, group):
    """Share of the trials that diverged in the tuning grid, S-DCP-D minus the other."""
    shares = [_diverged(evidence.sweep(on, n, "tuning")) for n in ("sdcp_d", on["other"])]
    return compare.difference(*shares)


def share_of_valid_patterns(evidence, on, group):
    """Share of the samples after 200 Gibbs steps from random states that are bars or stripes."""
    run = evidence.run(on, on["one"], group)
    alive = np.flatnonzero(np.isfinite(run.theta.W).all((1, 2)))
    trials = [run.trials[row] for row in alive]
    keys = [key(evidence.seed, "valid", on["n_hidden"], group, trial) for trial in trials]
    images = sampling.generate(run.theta.select(alive), keys, SAMPLES, STEPS, engine=PLAIN)
    valid = {pattern.tobytes() for pattern in bars_and_stripes(3)}
    shares = [np.mean([image.tobytes() in valid for image in own]) for own in images]
    return compare.mean(np.array(shares))


def sharpness_difference(evidence, on, group):
    """Sharpness of generated images, mean |p − ½| of their pixels, S-DCP-D minus the other."""
    return _quality_difference(evidence, on, group, "sharpness")


def diversity_difference(evidence, on, group):
    """Entropy of the classes of generated images (nats), S-DCP-D minus the other."""
    return _quality_difference(evidence, on, group, "entropy")


def _quality_difference(evidence, on, group, what):
    trials = [evidence.run(on, name, group).settings["trials"] for name in ("sdcp_d", on["other"])]
    try:
        measured = evidence.quality[on["experiment"], on["n_hidden"], group]
    except KeyError:
        raise NotRun("not measured") from None
    needed, images = evidence.budgets[on["experiment"], "quality"], measured.n_images.min()
    if images < needed:
        raise NotRun(f"measured on {images} of {needed} images only")
    values = measured.pivot(index="trial", columns="algorithm", values=what)
    values = values.reindex(index=range(max(trials)), columns=["sdcp_d", on["other"]])
    return compare.difference(*values.to_numpy().T)


MEASURES = (
    *(failed_checks, time_ratio, epochs_saved, range_of_finals, maximum, final_difference),
    *(area_difference, roughness_ratio, spread_ratio, range_over_epsilon, diverged_over_epsilon),
    *(diverged_in_grid, share_of_valid_patterns, sharpness_difference, diversity_difference),
)
MEASURES = {measure.__name__: measure for measure in MEASURES}


def _pairs(statistic, of_trials, evidence, on, group, *how):
    both = (evidence.run(on, name, group) for name in ("sdcp_d", on["other"]))
    return statistic(*(of_trials(run, on["part"]) for run in both), *how)


def _over_epsilon(evidence, on, group):
    sweep = evidence.sweep(on, "sdcp_d", f"sensitivity_{group}")
    return [run for run in sweep if run.settings["hyperparameters"]["lambda_hessian"] == 0]


def _diverged(sweep):
    """For each trial, the share of the settings in which it diverged."""
    return np.mean([~np.isfinite(compare.finals(run)) for run in sweep], 0)


def _exact(value, n):
    return Estimate(float(value), float(value), float(value), n)


# --------------------------------------------------------------------- the paper's values


def paper_value(measure, on, evidence):
    """The same measure by the paper's published curves or Table 1; None if it shows neither."""
    if measure == "time_ratio":
        seconds = evidence.table1[evidence.table1.dataset == on["timed"]].set_index("algorithm")
        return float(seconds["mean"][LABELS[on["one"]]] / seconds["mean"][LABELS[on["other"]]])
    curves = evidence.published[evidence.published.figure == evidence.figures.get(on["experiment"])]
    statistic = "max" if measure == "maximum" else "mean"
    part = on.get("part", "")
    curves = curves[curves.panel.str.contains(f"{part}-{statistic}$")]
    if curves.empty or not part or on.get("n_hidden") not in (4, 500) or "other_group" in on:
        return None
    table = curves.pivot(index="epoch", columns="algorithm", values="avg_loglik")
    if measure == "range_of_finals":
        return float(np.ptp(table.iloc[-1]))
    if measure == "maximum":
        return float(table[on["one"]].max())
    if "other" not in on:
        return None
    both = table[["sdcp_d", on["other"]]].dropna()
    epochs, (fast, slow) = both.index.to_numpy(float), both.to_numpy().T
    if measure == "epochs_saved":
        return float(compare.epochs_saved(epochs, fast, slow))
    if measure == "final_difference":
        return float(fast[-1] - slow[-1])
    if measure == "area_difference":
        return float(np.trapezoid(fast - slow, epochs) / np.ptp(epochs))
    if measure == "roughness_ratio":
        return float(np.diff(fast, 2).std(ddof=1) / np.diff(slow, 2).std(ddof=1))
    return None


# ------------------------------------------------------------------------------ judgement


def outcome(estimate, rule):
    """``holds``, ``fails`` or ``undecided``: an Estimate by {above: x}, {below: x} or {between}."""
    ((how, bound),) = rule.items()
    value, low, high, _ = estimate
    if np.isnan(value) or np.isnan(low):
        return "undecided"
    if how == "above":  # the bound itself is not enough
        inside, outside = low > bound, high <= bound
    elif how == "below":
        inside, outside = high < bound, low >= bound
    else:
        inside = bound[0] <= low and high <= bound[1]
        outside = high < bound[0] or low > bound[1]
    return "holds" if inside else "fails" if outside else "undecided"


def judge(claims, evidence):
    """Every measurement that the claims ask for.

    Parameters
    ----------
    claims : list of dict
        As in claims.yaml.

    Returns
    -------
    DataFrame
        id, measure, experiment, n_hidden, part, one, other, setting (``as published``, ``tuned``,
        or empty where hyperparameters are of no consequence), paper, ours, low, high, trials,
        outcome (``holds``, ``fails``, ``undecided``, ``not run``), note.
    """
    rows = []
    for claim in claims:
        for place in claim["where"]:
            others = place.get("other", [None])
            for other in [others] if isinstance(others, str) else others:
                on = place | ({"other": other} if other else {})
                for setting, group in _settings(claim):
                    rows.append(_measure(claim, on, setting, group, evidence))
    return pd.DataFrame(rows)


def _settings(claim):
    if "tuned_for" not in claim:
        return [("", AS_PUBLISHED)]
    tuned = ("tuned", f"tuned_{claim['tuned_for']}")
    return [tuned] if claim.get("only_tuned") else [("as published", AS_PUBLISHED), tuned]


def _measure(claim, on, setting, group, evidence):
    row = {"id": str(claim["id"]), "measure": claim["measure"], "experiment": on["experiment"]}
    row |= {"n_hidden": on.get("n_hidden"), "part": on.get("part", "")}
    row |= {"one": on.get("one", "sdcp_d"), "other": on.get("other", "")}
    row |= {"setting": setting, "paper": paper_value(claim["measure"], on, evidence)}
    try:
        found = MEASURES[claim["measure"]](evidence, on, group)
        verdict, note = outcome(found, claim["holds_if"]), ""
    except NotRun as reason:
        found, verdict, note = Estimate(np.nan, np.nan, np.nan, 0), "not run", str(reason)
    ours = {"ours": found.value, "low": found.low, "high": found.high, "trials": found.trials}
    return row | ours | {"outcome": verdict, "note": note}


def together(outcomes):
    """One outcome of several that must all hold."""
    for worst in ("fails", "not run", "undecided"):
        if worst in outcomes:
            return worst
    return "holds"


def verdict(by_setting):
    """The verdict on a claim about one dataset from its outcome in each setting.

    Parameters
    ----------
    by_setting : dict
        setting -> outcome.
    """
    if len(by_setting) == 1:
        (only,) = by_setting.values()
        names = {"holds": "reproduced", "fails": "not reproduced"}
        return names.get(only, only)
    published, tuned = by_setting["as published"], by_setting["tuned"]
    if published == "holds":
        names = {"holds": "reproduced", "not run": "reproduced as published, tuned not run"}
        return names.get(tuned, "reproduced only as published")
    if published == "fails":
        return "reproduced only when tuned" if tuned == "holds" else "not reproduced"
    return published


def verdicts(measurements, claims):
    """One row for each claim and dataset.

    Returns
    -------
    DataFrame
        id, place, claim, experiment, n_hidden, as published, tuned (outcomes; empty where the claim
        has nothing to do with it) and verdict.
    """
    rows = []
    about = {str(claim["id"]): claim for claim in claims}
    columns = ["id", "experiment", "n_hidden"]
    for (name, experiment, n), group in measurements.groupby(columns, sort=False, dropna=False):
        by = {s: together(set(part.outcome)) for s, part in group.groupby("setting", sort=False)}
        row = {"id": name, "place": about[name]["place"], "claim": about[name]["claim"]}
        row |= {"experiment": experiment, "n_hidden": n}
        row |= {"as published": by.get("as published", ""), "tuned": by.get("tuned", "")}
        rows.append(row | {"verdict": verdict(by)})
    return pd.DataFrame(rows)


def is_percentage(measure):
    """Whether a measure is a share, to be shown in per cent."""
    return bool(re.search(r"saved|diverged|share", measure))
