"""What is read off curves, against what it is by hand."""

import numpy as np
import pytest
from conftest import run_of
from scipy.stats import ttest_1samp

from sdcpd.study import compare

NAN, INF = np.nan, np.inf
EPOCHS = [0, 1, 2, 4, 6, 8]  # every 2, and one more
VALUES = [
    [-50, -9, -7, -4, -3, -3.5],
    [-50, -8, -6, -5, -1, -2],
    [-50, -2, -1, NAN, NAN, NAN],
]


def ends(estimate):
    return estimate.value, *estimate.interval(), estimate.trials


# ------------------------------------------------------------------------ epochs saved


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        # between points: halfway between log(20 + 10) and log(30 + 10)
        ([-9, -4, -2, -2], [-9, -7, -5, -3], 1 - (np.sqrt(30 * 40) - 10) / 50),
        ([-9, -5, -3, -2], [-9, -7, -5, -3], 1 - 30 / 50),  # at a point
        ([-3, -9, -9, -9], [-9, -7, -5, -3], 1 - 10 / 50),  # at the first point
        ([-9, -3, -9, -3], [-9, -7, -5, -3], 1 - 20 / 50),  # for the first time
        ([-9, -9, -9, -3], [-9, -3, -5, -4], 1 - 50 / 20),  # later; the best is not at the end
        ([-9, -5, -5, -1], [-9, -7, -5, -3], 1 - (np.sqrt(40 * 60) - 10) / 50),  # after a plateau
        ([-9, -7, -5, -3.1], [-9, -7, -5, -3], -INF),  # never
    ],
)
def test_epochs_saved_by_hand(fast, slow, expected):
    fast, slow = np.array(fast, float), np.array(slow, float)
    saved = compare.epochs_saved(np.array([10.0, 20, 30, 50]), fast, slow)
    assert saved == pytest.approx(expected, abs=1e-12)


def test_epochs_saved_below_the_best_and_where_the_slow_one_is_from_the_start():
    epochs, fast, slow = np.array([0.0, 10, 20]), np.array([-9.0, -3, -3]), np.array([-9.0, -5, -1])
    found = [compare.epochs_saved(epochs, fast, slow, below) for below in (0, 2, 4, 8)]
    there = np.sqrt(20 * 30) - 10, 10 * 2 ** (4 / 6) - 10
    assert found == pytest.approx([-INF, 1 - 10 / there[0], 1 - there[1] / 10, NAN], nan_ok=True)


def test_saved_is_that_of_the_mean_curves():
    rng = np.random.default_rng(2)
    steps = np.array([-9, -7, -6, -5, -4, -3.0])
    fast, slow = (steps + rng.normal(0, 0.1, (5, 6)) + up for up in (1, 0))
    found = compare.saved(run_of(EPOCHS, fast), run_of(EPOCHS, slow), below=1.5)
    expected = compare.epochs_saved(np.array(EPOCHS), fast.mean(0), slow.mean(0), 1.5)
    assert found.value == pytest.approx(expected) and found.trials == 5
    low, high = found.interval()
    assert low < found.value < high < 1
    train = compare.saved(run_of(EPOCHS, fast), run_of(EPOCHS, slow), "train", 1.5)
    np.testing.assert_allclose(ends(train), ends(found))  # one nat higher, both


def test_saved_compares_common_epochs_and_trials_alive_in_both():
    fast = [[-9, -5, 0, -3, -1], [-9, -5, 0, NAN, NAN], [-9, -5, 0, -3, -1]]
    slow = [[-9, -6, -5, -3], [-9, -6, -5, 99], [-9, -6, -5, NAN]]
    runs = run_of([0, 2, 3, 4, 6], fast), run_of([0, 2, 4, 6], slow)
    assert ends(compare.saved(*runs)) == pytest.approx((1 - 4 / 6, NAN, NAN, 1), nan_ok=True)


def test_never_is_an_end_of_an_interval():
    """Of a fast curve that is above the level in the mean, but not by more than its spread."""
    slow = run_of([0, 10], [[-9, -3]] * 4)
    sometimes = compare.saved(run_of([0, 10], [[-9, 9]] + [[-9, -4]] * 3), slow)
    low, high = sometimes.interval()
    assert low == -INF and 0 < sometimes.value < high
    upper = 2.25 + 3.1824 * 6.5 / 2  # nats above the slow one at epoch 10, 6 below it at 0
    assert high == pytest.approx(2 - 2 ** (6 / (6 + upper)), abs=1e-4)
    never = compare.saved(run_of([0, 10], [[-9, -4]] * 4), slow)
    assert ends(never) == (-INF, -INF, -INF, 4)


@pytest.mark.parametrize(("below", "trials"), [(0.25, 5), (1, 25)])
def test_interval_of_saved_covers_the_truth(below, trials):
    """Curves that rise by 2 nats, the fast in half the epochs; paired noise of each trial as a
    whole and of each point."""
    rng, epochs = np.random.default_rng(7), np.arange(0, 101, 2.0)
    shape = [2 - 2 * np.exp(-epochs / width) for width in (15, 30)]
    truth = compare.epochs_saved(epochs, *shape, below)
    covered = 0
    for _ in range(300):
        shared = rng.normal(0, 0.3, (trials, 1)) * (epochs > 0)
        fast, slow = (
            line + shared + rng.normal(0, 0.1, (trials, 1)) + rng.normal(0, 0.03, (trials, 51))
            for line in shape
        )
        found = compare.saved(run_of(epochs, fast), run_of(epochs, slow), below=below)
        low, high = found.interval()
        covered += low <= truth <= high
    assert covered / 300 > 0.92


def test_best_difference_is_of_the_mean_curves():
    fast = run_of([0, 2, 4, 6], [[-9, -1, -3, -5], [-9, -1, -5, -3]])
    slow = run_of([0, 4, 6], [[-9, -6, -4], [-9, -6, -6]])
    found = compare.best_difference(fast, slow)  # at epoch 2 there is no slow one to compare with
    assert (found.value, found.trials) == (-4 + 5, 2)


# ------------------------------------------------------------------ one number a trial


def test_areas_leave_the_start_out():
    """Trapezoids, over the length from the first evaluation after the start."""
    run = run_of(EPOCHS, VALUES)
    expected = np.array([-8 - 2 * (5.5 + 3.5 + 3.25), -7 - 2 * (5.5 + 3 + 1.5), NAN]) / 7
    np.testing.assert_allclose(compare.areas(run), expected)
    np.testing.assert_allclose(compare.areas(run, "train"), expected + 1)
    np.testing.assert_allclose(compare.areas(run, since=4)[0], (3.5 + 3.25) / -2)
    without = run_of(EPOCHS[1:], [values[1:] for values in VALUES])
    np.testing.assert_array_equal(compare.areas(without), compare.areas(run))


def test_finals_and_maxima():
    """Whatever was recorded of a diverged trial is no value; what it was before counts."""
    run = run_of(EPOCHS, VALUES)
    np.testing.assert_array_equal(compare.finals(run), [-3.5, -2, NAN])
    np.testing.assert_array_equal(compare.finals(run, "train"), [-2.5, -1, NAN])
    np.testing.assert_array_equal(compare.maxima(run), [-3, -1, -1])
    np.testing.assert_array_equal(compare.maxima(run, "train"), [-2, 0, 0])
    epochs, values = compare.curves(run)
    assert epochs.tolist() == EPOCHS
    np.testing.assert_array_equal(values, VALUES)


@pytest.mark.parametrize("step", [2, 0.1])
def test_roughness_is_of_evenly_spaced_evaluations(step):
    epochs = [step * epoch / 2 for epoch in EPOCHS]
    found = compare.roughness(run_of(epochs, VALUES))
    second = np.array([[-7 + 2 * 4 - 3, -4 + 2 * 3 - 3.5], [-6 + 2 * 5 - 1, -5 + 2 * 1 - 2]])
    expected = (second[:, 0] - second[:, 1]) ** 2 / 2
    np.testing.assert_allclose(found, [*expected, NAN])
    np.testing.assert_allclose(compare.roughness(run_of(epochs, VALUES), "train"), found)


@pytest.mark.parametrize("prefix", ["", "trusted_"])
def test_roughness_is_without_the_noise_of_the_estimates(prefix):
    """Of a straight line and errors of known size, nothing in the mean; from epoch 40 on."""
    rng, epochs = np.random.default_rng(8), np.arange(0, 201, 20.0)
    errors = rng.uniform(0.1, 0.5, (2000, 11))
    noisy = epochs / 100 + errors * rng.normal(size=errors.shape)
    run = run_of(epochs, noisy, ais={})
    curve = run.curve.sort_values(["trial", "epoch"])
    curve = curve.assign(log_z=9.0, log_z_se=0.0, trusted_log_z=9.0)
    curve[f"{prefix}test"], curve[f"{prefix}log_z_se"] = curve.test, errors.ravel()
    whole, later = (compare.roughness(run._replace(curve=curve), since=e) for e in (0, 40))
    assert abs(whole.mean()) < 0.03 and abs(later.mean()) < 0.03
    assert compare.roughness(run._replace(curve=run.curve)).mean() > 0.5
    rough = curve.assign(**{f"{prefix}test": curve[f"{prefix}test"] + (curve.epoch % 40 == 0)})
    assert compare.roughness(run._replace(curve=rough)).mean() > 4  # ±2 about 0


# ----------------------------------------------------------- validation, and one trial


def with_valid(run, valid):
    """The run with a validation likelihood (trials, epochs), too."""
    places = zip(run.curve.trial, run.curve.epoch, strict=True)
    return run._replace(
        curve=run.curve.assign(valid=[valid[t][EPOCHS.index(epoch)] for t, epoch in places])
    )


def test_early_stopping_is_at_each_trials_best_validation():
    """Neither at the best test value, which is not to be looked at, nor of the mean curve; the
    first of several; a diverged trial has no end, so no row."""
    valid = [
        [-60, -9, -4, -4, -5, -6],  # twice the highest
        [-60, -8, -7, -6, -5, -4],  # at the end
        [-60, -1, -1, NAN, NAN, NAN],  # diverged
        [-3, -9, -9, -9, -9, -9],  # never better than at the start
    ]
    test = [*VALUES, [-50, -9, -7, -6, -5, -4]]
    table = compare.early_stopping(with_valid(run_of(EPOCHS, test), valid))
    columns = ["trial", "epoch", "train", "valid", "test", "train_end", "test_end"]
    assert list(table.columns) == columns
    assert table.to_numpy().tolist() == [
        [0, 2, -6, -4, -7, -2.5, -3.5],
        [1, 8, -1, -4, -2, -1, -2],
        [3, 0, -49, -3, -50, -3, -4],
    ]


def test_early_stopping_where_all_trials_have_diverged():
    run = with_valid(run_of(EPOCHS, [[-50, -9, NAN, NAN, NAN, NAN]]), [[-9] * 6])
    table = compare.early_stopping(run)
    assert table.empty and "test_end" in table and np.isnan(table.test.mean())


def test_a_run_without_validation_has_only_its_end():
    table = compare.early_stopping(run_of([1, 2], [[-5.0, -4.0], [-6.0, -7.0]]))
    assert table.test_end.tolist() == [-4.0, -7.0] and table.train_end.tolist() == [-3.0, -6.0]
    assert table[["epoch", "train", "valid", "test"]].isna().to_numpy().all()


def test_a_run_beside_a_shorter_one():
    """As far as the other goes, the end included, and with as many trials, the first."""
    run = run_of(EPOCHS, VALUES)
    for trials, last, expected in ((1, {}, EPOCHS), (2, {"epochs": 4}, [0, 1, 2, 4])):
        part = compare.until(run, trials=trials, **last)
        epochs, values = compare.curves(part)
        assert epochs.tolist() == expected and set(part.curve.trial) == set(range(trials))
        np.testing.assert_array_equal(values, [row[: len(expected)] for row in VALUES[:trials]])
        changes = {"trials": trials, "epochs": expected[-1]}
        assert part.settings == run.settings | changes
    assert run.settings["trials"] == 3 and len(run.curve.trial.unique()) == 3
    later = run._replace(curve=run.curve[run.curve.trial > 0])  # whatever its number is
    np.testing.assert_array_equal(compare.curves(compare.until(later, trials=1))[1], VALUES[1:2])


# ------------------------------------------------------------------------------- pairs


def test_one_trial_has_no_interval_and_none_no_value():
    for values, expected in (([-3.0, NAN], (-3.0, NAN, NAN, 1)), ([NAN], (NAN, NAN, NAN, 0))):
        np.testing.assert_equal(ends(compare.mean(np.array(values))), expected)
    found = compare.ratio(np.array([6.0]), np.array([2.0]))
    np.testing.assert_allclose(ends(found), (3, NAN, NAN, 1))


def test_a_shift_of_all_pairs_is_found_exactly():
    trials = np.random.default_rng(3).integers(-99, 0, 10).astype(float)
    assert ends(compare.difference(trials + 0.5, trials)) == (0.5, 0.5, 0.5, 10)
    np.testing.assert_allclose(ends(compare.ratio(4 * trials, trials)), (4, 4, 4, 10))
    assert ends(compare.range_of_means([trials, trials + 2, trials + 0.5])) == (2, 2, 2, 10)


def test_a_diverged_trial_leaves_its_pair_out():
    one, other = np.array([1.0, 2, NAN, 4]), np.array([3.0, NAN, 5, 8])
    assert compare.difference(one, other)[:2] == (-3, 2)
    assert compare.ratio(one, other)[:2] == (pytest.approx(2.5 / 5.5), 2)
    assert compare.range_of_means([one, other])[:2] == (3, 2)


def test_ratios_of_spreads_and_of_geometric_means():
    one, other = np.array([1.0, 3, 8]), np.array([2.0, 4, 6])
    assert compare.ratio(one, other, compare.spread).value == pytest.approx(np.sqrt(13) / 2)
    found = compare.ratio(one, other, compare.geometric_mean)
    logs = np.log(one / other)
    assert found.value == pytest.approx(np.exp(logs.mean()))
    assert found.interval() == pytest.approx(np.exp(ttest_1samp(logs, 0).confidence_interval()))


def test_different_numbers_of_trials_are_refused():
    for compared in (compare.difference, compare.ratio):
        with pytest.raises(ValueError, match="3 and 4 trials"):
            compared(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="2 and 3 trials"):
        compare.saved(run_of([0, 1], [[-2, -1]] * 2), run_of([0, 1], [[-2, -1]] * 3))


# --------------------------------------------------------------- which likelihoods are judged


def with_trusted(run, less, agrees=1.0, bound=1.0):
    """The run by AIS, its trusted log-likelihoods so many nats below the plain ones."""
    curve = run.curve.assign(log_z=100.0, trusted_log_z=100.0 + less, trusted_agrees=agrees)
    curve = curve.assign(log_z_se=0.1, trusted_log_z_se=0.2, bound=curve.trusted_log_z - bound)
    trusted = {f"trusted_{part}": curve[part] - less for part in ("train", "test")}
    return run._replace(curve=curve.assign(**trusted), settings=run.settings | {"ais": {}})


def test_trusted_likelihoods_are_judged():
    run = with_trusted(run_of(EPOCHS, VALUES), 3)
    for part, more in (("test", 0), ("train", 1)):
        _, values = compare.curves(run, part)
        np.testing.assert_array_equal(values, np.array(VALUES, float) - 3 + more)
    np.testing.assert_array_equal(compare.finals(run), [-6.5, -5, NAN])
    assert compare.doubts(run) == ""


@pytest.mark.parametrize(("error", "threshold"), [(0.3, 3 * 0.5), (0.01, 3 * 0.4), (None, 0.5)])
def test_plain_ais_that_finds_clearly_more_is_judged_instead(error, threshold):
    """By three of both errors, and half a nat; of the points at which it was made."""
    for more, by_plain in ((0.9 * threshold, False), (1.1 * threshold, True)):
        run = with_trusted(run_of(EPOCHS, VALUES), -more)
        errors = {"log_z_se": error or 0.0, "trusted_log_z_se": 0.4 if error else 0.0}
        run = run._replace(curve=run.curve.assign(**errors))
        first = run.curve.epoch == EPOCHS[0]
        for name in ("test", "log_z", "log_z_se"):
            run.curve.loc[first, name] = NAN
        _, values = compare.curves(run)
        expected = np.array(VALUES, float) + more
        expected[:, 1:] -= more * by_plain
        np.testing.assert_allclose(values, expected)


def test_plain_ais_alone_is_doubted_and_exact_is_not():
    """And so is a point that lacks the trusted estimate, of which there is no value either."""
    plain = run_of(EPOCHS, VALUES, ais={})
    assert "plain AIS alone" in compare.doubts(plain)
    np.testing.assert_array_equal(compare.curves(plain)[1], np.array(VALUES, float))
    part = with_trusted(plain, 3)
    first = part.curve.epoch == EPOCHS[0]
    names = [name for name in part.curve if "trusted" in name]
    part = part._replace(curve=part.curve.assign(**{n: part.curve[n].mask(first) for n in names}))
    assert compare.doubts(part) == f"log Z doubtful at epoch {EPOCHS[0]:g}"
    assert np.isnan(compare.curves(part)[1][:, 0]).all()
    assert compare.doubts(run_of(EPOCHS, VALUES)) == ""  # small: exact


def test_estimates_that_do_not_agree_are_doubted_unless_a_bound_is_near():
    run = run_of([1, 2], [[-3, -2]])
    for bound, said in (
        (1, "log Z doubtful at epoch 1, 2"),
        (0.2, ""),
        (-5, "log Z doubtful at epoch 1, 2"),  # refuted
    ):
        assert compare.doubts(with_trusted(run, 0, agrees=0.0, bound=bound)) == said
