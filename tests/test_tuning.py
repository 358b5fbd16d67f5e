"""The choice of hyperparameters, and how it becomes a part of hyperparameters.yaml."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import schema
import yaml
from conftest import run_of

from sdcpd import experiments, runs
from sdcpd.algorithms import ALGORITHMS
from sdcpd.study import tuning

NAN = np.nan
EPOCHS = [0, 2, 4, 8]
FAST = [-50, -4, -4, -4]  # the largest area
FAR = [-50, -9, -6, -1]  # the largest end
POOR = [-50, -9, -9, -9]
BEST = [-50, -1, -1, -1]
CG = {"sliding_factor": 0.01}


def sweep_of(algorithm, curves, **settings):
    """A sweep: hyperparameters and the curves of its trials, setting by setting."""
    return [
        run_of(EPOCHS, trials, algorithm=algorithm, hyperparameters=values, **settings)
        for values, trials in curves
    ]


def row_of(trials):
    """The row of a table of one setting with these curves of its trials."""
    return tuning.table([sweep_of("cd", [({"learning_rate": 0.1}, trials)])]).iloc[0]


def rates(*values, **others):
    return [{"learning_rate": value} | others for value in values]


@pytest.fixture
def sweeps():
    """The third setting of CD would be the best of all, had it not diverged once."""
    three = [[FAST] * 2, [FAR] * 2, [BEST, [-50, -1, NAN, NAN]]]
    epsilons = [{"learning_rate": 0.07, "epsilon": e, "lambda_hessian": 0.0} for e in (0.1, 0.3)]
    return [
        sweep_of("cd", zip(rates(0.1, 0.2, 0.4), three, strict=True)),
        sweep_of("cg", zip(rates(0.1, 0.2, 0.3, **CG), [[POOR], [FAST], [POOR]], strict=True)),
        sweep_of("sdcp_d", zip(epsilons, [[FAST], [FAR]], strict=True), n_inner_iterations=2),
    ]


# --------------------------------------------------------------------------- the table


def test_table_has_a_row_for_each_setting(sweeps):
    table = tuning.table(sweeps)
    assert table.algorithm.tolist() == ["cd"] * 3 + ["cg"] * 3 + ["sdcp_d"] * 2
    assert table.learning_rate.tolist() == [0.1, 0.2, 0.4, 0.1, 0.2, 0.3, 0.07, 0.07]
    np.testing.assert_array_equal(table.epsilon, [NAN] * 6 + [0.1, 0.3])
    np.testing.assert_array_equal(table.lambda_hessian, [NAN] * 6 + [0, 0])
    assert table.trials.tolist() == [2, 2, 2, 1, 1, 1, 1, 1]
    assert table.diverged.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    far = (2 * (-9 - 6) / 2 + 4 * (-6 - 1) / 2) / 6
    np.testing.assert_allclose(table.area, [-4, far, -1, -9, -4, -9, -4, far])
    np.testing.assert_allclose(table.final, [-4, -1, -1, -9, -4, -9, -4, -1])
    assert table.distance.isna().all()


def test_standard_errors_are_of_the_trials_alive():
    trials = [[-9, -1, -1, end] for end in (-1, -3, -8, NAN)]
    row = row_of(trials)
    assert row.diverged == 1 and row.final == -4
    assert row.final_se == pytest.approx(np.sqrt((9 + 1 + 16) / 2 / 3))
    assert row.area_se == pytest.approx(row.final_se / 3)  # the last of the mean's three points
    one = row_of(trials[2:])
    assert one.final == -8 and np.isnan([one.final_se, one.area_se]).all()


def test_all_trials_of_a_setting_may_diverge():
    row = row_of([[-9, NAN, NAN, NAN]])
    assert row.diverged == row.trials == 1
    assert row[["area", "final", "area_se", "final_se", "distance"]].isna().all()


def test_distance_is_that_of_the_mean_training_curve(sweeps):
    """Of the algorithm's own points up to our last epoch, ours between evaluations linearly."""
    published = pd.DataFrame(
        [("cd", 4, -3.0), ("cd", 6, -5.0), ("cd", 8, -2.0), ("cd", 20, -1.0), ("pcd", 4, 0.0)],
        columns=["algorithm", "epoch", "avg_loglik"],
    )
    found = tuning.table(sweeps, published).distance
    # one nat above the test curves: −3, −3, −3 and −5, −2.5, 0
    assert found[0] == pytest.approx(np.sqrt((0 + 4 + 1) / 3))
    assert found[1] == pytest.approx(np.sqrt((4 + 6.25 + 4) / 3))
    assert found[3:].isna().all()


# -------------------------------------------------------------------------- the choice


def test_the_best_by_each_criterion_is_chosen(sweeps):
    chosen = tuning.choose(tuning.table(sweeps), 2)
    for group, of_cd, epsilon in (("tuned_speed", 0.1, 0.1), ("tuned_final", 0.2, 0.3)):
        assert chosen[group] == {
            "cd": {"learning_rate": of_cd},
            "cg": {"learning_rate": 0.2},
            "sdcp_d": {"learning_rate": 0.07, "lambda_hessian": 0.0, "epsilon": epsilon},
        }


def test_a_setting_that_was_dropped_or_whose_log_z_is_doubtful_is_not_chosen(sweeps):
    """By plain AIS alone, as in older run files: the best of CD."""
    table = tuning.table(sweeps)
    assert tuning.choose(table, 2)["tuned_final"]["cd"] == {"learning_rate": 0.2}
    dropped = table.assign(dropped=+(table.learning_rate == 0.2))
    best = sweeps[0][1]
    sweeps[0][1] = best._replace(settings=best.settings | {"ais": {}})
    doubtful = tuning.table(sweeps)
    assert (doubtful.doubts != "").sum() == 1
    for without in (dropped, doubtful):
        assert tuning.choose(without, 2)["tuned_final"]["cd"] == {"learning_rate": 0.1}


def test_an_algorithm_that_always_diverged_gets_no_values(sweeps):
    always = sweep_of("sdcp", zip(rates(0.1, 0.2), [[[-50, -1, -1, NAN]]] * 2, strict=True))
    chosen = tuning.choose(tuning.table([*sweeps[:2], always]), 1)
    assert set(chosen["tuned_speed"]) == set(chosen["tuned_final"]) == {"cd", "cg"}
    assert chosen["step_matched"] == {}


def test_step_matched_rates_are_of_the_smallest_step_of_the_fastest(sweeps):
    """0.07 / (¼ + 0.1) = 0.2; CG makes one step where the others make d = 6."""
    matched = tuning.choose(tuning.table(sweeps), 6)["step_matched"]
    assert set(matched) == {"cg", "sdcp"}
    assert matched["sdcp"]["learning_rate"] == pytest.approx(0.2)
    assert matched["cg"]["learning_rate"] == pytest.approx(1.2)


def test_n_inner_is_that_of_the_algorithms_that_have_one(sweeps):
    assert tuning.n_inner(sweeps) == 2 and tuning.n_inner(sweeps[:2]) == 1


# ------------------------------------------------------------------------- adopted

AWKWARD = (1.0, 1234567.0, 1e-05, 1 / 3, 0.1 + 0.2)  # numbers that lose digits easily


def grids_of(n_inner_iterations, learning_rates=AWKWARD):
    """Sweeps of all algorithms; the settings get better one by one."""
    curves = [[[-50, -9 + k, -9 + k, -9 + k]] for k in range(len(learning_rates))]
    found = []
    for name in ALGORITHMS:
        values = rates(*learning_rates, **(CG if name == "cg" else {}))
        inner = {"n_inner_iterations": n_inner_iterations if name[0] == "s" else 1}
        if name == "sdcp_d":
            values = [v | {"epsilon": 0.1 + 0.2, "lambda_hessian": 1 / 7} for v in values]
        found.append(sweep_of(name, zip(values, curves, strict=True), **inner))
    return found


@pytest.fixture
def path(tmp_path):
    return Path(shutil.copy(experiments.CONFIG / "hyperparameters.yaml", tmp_path))


@pytest.fixture
def tunings():
    return {"bars_and_stripes_4h": grids_of(2), "mnist_500h": grids_of(6)}


def groups_of(path):
    """What the file says, if it is valid."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert schema.violation("hyperparameters", content) is None
    return content["hyperparameters"]


def test_adopt_leaves_what_was_written_by_hand_as_it_is(path, tunings):
    by_hand = path.read_bytes().partition(tuning._BEGIN.encode())[0]
    before = groups_of(path)
    tuning.adopt(tunings, path)
    assert path.read_bytes().startswith(by_hand)
    after = groups_of(path)
    chosen = {"tuned_speed", "tuned_final", "step_matched"}
    assert set(after) == set(before) | chosen
    assert all(after[name] == before[name] for name in set(before) - chosen)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_adopted_values_are_those_chosen_to_the_last_digit(path, tunings):
    tuning.adopt(tunings, path)
    groups = groups_of(path)
    for name, sweeps in tunings.items():
        chosen = tuning.choose(tuning.table(sweeps), tuning.n_inner(sweeps))
        assert {group: groups[group][name] for group in chosen} == chosen
        assert list(groups["tuned_speed"][name]) == list(ALGORITHMS)
    for rate in AWKWARD:
        tuning.adopt({"mnist_500h": grids_of(2, [rate])}, path)
        found = groups_of(path)["tuned_final"]["mnist_500h"]
        assert {values["learning_rate"] for values in found.values()} == {rate}


def test_adopted_again_the_file_is_the_same(path, tunings):
    tuning.adopt(tunings, path)
    once = path.read_bytes()
    tuning.adopt(tunings, path)
    assert path.read_bytes() == once
    tuning.adopt({"mnist_500h": grids_of(6)}, path)  # what was adopted is replaced as a whole
    assert set(groups_of(path)["tuned_speed"]) == {"mnist_500h"}
    tuning.adopt(tunings, path)
    assert path.read_bytes() == once


def test_every_adopted_value_says_why(path, tunings):
    tuning.adopt(tunings, path)
    text = path.read_text(encoding="utf-8").partition(tuning._BEGIN)[2]
    for name, sweeps in tunings.items():
        assert f"# {name}: {tuning.origin(sweeps)}\n" in text
    assert text.count(" # learning rates of S-DCP-D's smallest step\n") == 2 * 2
    assert text.count(" # best of 5: area -5.000, final -5.000\n") == 2 * 2 * 5
    for up_to_the_edge in ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]):
        tuning.adopt({"mnist_500h": grids_of(6, up_to_the_edge)}, path)
        text = path.read_text(encoding="utf-8")
        assert text.count("final -7.000; learning_rate at the edge of the grid\n") == 2 * 5


# ------------------------------------------------------------------------- by halving


def frame(area, rate=None, epsilon=None, diverged=(), doubts=(), **columns):
    """A table with one row for each value; the numbers of the rows are those of the settings."""
    n = len(area)
    columns |= {"area": area, "learning_rate": rate or range(1, n + 1)}
    columns |= {"epsilon": epsilon or [NAN] * n, "diverged": [+(i in diverged) for i in range(n)]}
    return pd.DataFrame(columns | {"doubts": ["why" * (i in doubts) for i in range(n)]})


def kept(n, area, **of_frame):
    """Of settings that are called a, b, …, in the order of their steps."""
    return "".join(tuning.kept(frame(area, **of_frame), n, "abcdefghij"))


def test_the_best_by_area_go_on_and_of_smaller_steps_some_at_equal_distances():
    area = [1, 2, 3, 4, 5, 6, 8, 9, 7, 0]
    assert [kept(n, area) for n in (1, 2, 3)] == ["h", "dh", "dgh"]
    assert kept(4, area) == "begh" and kept(6, area) == "bdfghi"
    # too few are smaller: the next by area
    assert kept(4, [9, 8, 7, 6, 1]) == "abcd" and kept(4, [7, 9, 8, 6, 1]) == "abcd"
    assert kept(6, [1, 2, 3, 9, 8, 7]) == "abcdef"
    # what cannot be judged does not go on, however good or small
    assert kept(2, area, diverged=[3], doubts=[7]) == "cg"
    assert kept(2, [1, 2, 3], diverged=range(2)) == "c"
    assert kept(2, [1, 2, 3], diverged=range(3)) == ""


def test_the_step_of_sdcpd_is_its_rate_over_the_largest_hessian():
    how = {"rate": [0.04, 0.02, 0.03], "epsilon": [0.03, 0.03, 0.3]}  # .143, .071, .055
    assert kept(2, [2, 9, 1], **how) == "bc"


def test_at_last_the_next_smaller_step_goes_on():
    how = {"dropped": [0, 1, 2, 0, 0, 1], "final": [3, 9, 9, 5, 4, 9]}
    rate = [0.01, 0.02, 0.03, 0.04, 0.05, 0.045]
    assert tuning.next_smaller(frame(range(6), rate=rate, **how)) == [2]
    assert tuning.next_smaller(frame(range(6), rate=rate, doubts=[2], **how)) == [1]
    assert tuning.next_smaller(frame(range(6), rate=rate, diverged=[1, 2], **how)) == []
    assert tuning.next_smaller(frame(range(6), rate=rate, doubts=[3], **how)) == [5]
    assert tuning.next_smaller(frame(range(6), rate=rate, doubts=[0, 3, 4], **how)) == []
    epsilon = [0.75, 0.75, 0.25, 0.75, 0.75, 0.0]  # .01, .02, .06, .04, .05, .18
    assert tuning.next_smaller(frame(range(6), rate=rate, epsilon=epsilon, **how)) == [1]


SMALL = {"dataset": "bars_and_stripes", "algorithm": "cd", "n_hidden": 4, "trials": 2, "seed": 1}
SMALL |= {"batch_size": 6, "n_gibbs_steps": 1, "n_inner_iterations": 1, "ais": None, "epochs": 100}
SMALL |= {"evaluate": {"every": 2, "also": [1]}, "rounds": [[3, 3], [30, 2]]}
SMALL |= {"hyperparameters": rates(0.3, 0.1, 0.4, 0.2, 1e3, 0.5)}


def test_halving(tmp_path):
    """Each setting is the run made alone, as far as it went; on disk, too."""
    sweep = tuning.execute(SMALL, tmp_path, "numpy")
    table = tuning.table([sweep])
    assert table.dropped.tolist() == [0, 2, 0, 0, 1, 1]  # .3, the next smaller than .4, at last
    assert table.epochs.drop(4).tolist() == [100, 30, 100, 100, 3]
    assert table.diverged[4] and table.epochs[4] <= 3
    for run, loaded, row in zip(sweep, runs.load_sweep(tmp_path), table.itertuples(), strict=True):
        one = SMALL | {"hyperparameters": run.settings["hyperparameters"]}
        assert loaded.settings == run.settings == one
        until = {"epochs": {0: 100, 1: 3, 2: 30}[row.dropped]}
        del one["rounds"]
        alone = runs.execute(one | until, None, "numpy").curve
        pd.testing.assert_frame_equal(run.curve, alone, check_exact=True)
    shown = tuning.describe(table)
    assert set(shown.dropped) == {"", "round 1", "round 2"} and shown.epochs[0] == "100"
    assert "3 (4 go on), 30 (3 go on), 100 epochs" in tuning.origin([sweep])


def test_rounds_of_a_part_of_an_epoch():
    """Of 41 updates each: they end after 2 and 4 of them."""
    for updates, dropped in ((1, 1), (2, 1), (3, 2), (4, 0)):
        run = run_of([updates / 41], [[-1]], rounds=[[0.05, 1]])
        settings, curve = run.settings | {"epochs": 0.1}, run.curve.assign(update=updates)
        run = run._replace(settings=settings, curve=curve)
        assert tuning.table([[run]]).dropped[0] == dropped


def test_interrupted_halving_goes_on(tmp_path, monkeypatch):
    tuning.execute(SMALL, tmp_path / "undisturbed", "numpy")
    seen, original = [], runs.execute
    folder = tmp_path / "sweep"

    def kill(*arguments, **how):
        seen.append(arguments)
        if len(seen) == 8:  # in the second round
            raise KeyboardInterrupt
        return original(*arguments, **how)

    monkeypatch.setattr(runs, "execute", kill)
    with pytest.raises(KeyboardInterrupt):
        tuning.execute(SMALL, folder, "numpy")
    resumed = tuning.execute(SMALL, folder, "numpy")
    assert resumed[0].wall["resumed_at_update"] > 0
    name = "curve.csv.gz"
    assert (folder / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


# ------------------------------------------------------------------------- for readers


def test_origin(sweeps):
    said = tuning.origin(sweeps)
    assert said == "3/2 settings each × 2 trials × 8 epochs, seed 1, CPU test, 2026-01-02"
    half = [[run._replace(settings=run.settings | {"epochs": 0.5}) for run in sweeps[1]]]
    assert tuning.origin(half).startswith("3 settings each × 1 trial × 0.5 epochs, ")


def test_describe(sweeps):
    published = pd.DataFrame({"epoch": [4], "algorithm": ["cd"], "avg_loglik": [-5.0]})
    table = tuning.describe(tuning.table(sweeps, published))
    expected = {"algorithm": "CD", "η": "0.1", "ε": "", "λ_H": "", "epochs": "8", "dropped": ""}
    expected |= {"diverged": "0 of 2", "area": "-4.000 ± 0.000", "final": "-4.000 ± 0.000"}
    expected |= {"distance": "2.00", "doubts": ""}
    assert table.iloc[0].to_dict() == expected
    last = table.iloc[7][["algorithm", "ε", "λ_H", "final"]]
    assert last.tolist() == ["S-DCP-D", "0.3", "0", "-1.000"]
