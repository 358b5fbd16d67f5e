"""What is read off curves, against loops by hand; and whether intervals are what they say."""

import numpy as np
import pytest
from conftest import run_of

from sdcpd import compare
from sdcpd.compare import Estimate

NAN, INF = np.nan, np.inf
EPOCHS = [0, 1, 2, 4, 6, 8]  # every 2, and one more
VALUES = [
    [-50, -9, -7, -4, -3, -3.5],
    [-50, -8, -6, -5, -1, -2],
    [-50, -2, -1, NAN, NAN, NAN],
]


def width(estimate):
    return estimate.high - estimate.low


# ------------------------------------------------------------------------ epochs saved


def reach(epochs, values, level):
    """The epoch at which the line through the points first reaches a level, piece by piece."""
    if values[0] >= level:
        return epochs[0]
    for k in range(1, len(values)):
        if values[k] >= level:
            slope = (values[k] - values[k - 1]) / (epochs[k] - epochs[k - 1])
            return epochs[k - 1] + (level - values[k - 1]) / slope
    return INF


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [
        ([-9, -4, -2, -2], [-9, -7, -5, -3], 1 - 25 / 50),  # between points
        ([-9, -5, -3, -2], [-9, -7, -5, -3], 1 - 30 / 50),  # at a point
        ([-3, -9, -9, -9], [-9, -7, -5, -3], 1 - 10 / 50),  # at the first point
        ([-9, -3, -9, -3], [-9, -7, -5, -3], 1 - 20 / 50),  # for the first time
        ([-9, -9, -9, -3], [-9, -3, -5, -4], 1 - 50 / 20),  # later; the best is not at the end
        ([-9, -5, -5, -1], [-9, -7, -5, -3], 1 - 40 / 50),  # after a plateau
        ([-9, -7, -5, -3], [-9, -7, -5, -3], 0),
        ([-9, -7, -5, -3.1], [-9, -7, -5, -3], -INF),  # never
    ],
)
def test_epochs_saved_by_hand(fast, slow, expected):
    fast, slow = np.array(fast, float), np.array(slow, float)
    saved = compare.epochs_saved(np.array([10.0, 20, 30, 50]), fast, slow)
    assert saved == pytest.approx(expected, abs=1e-12)


def test_epochs_saved_of_many_curves_at_once():
    rng = np.random.default_rng(1)
    epochs = np.cumsum(rng.integers(1, 5, 9)).astype(float)
    fast, slow = rng.normal(size=(2, 20, 3, 9)) + epochs / 5
    found = compare.epochs_saved(epochs, fast, slow)
    assert found.shape == (20, 3) and np.isinf(found).any() and (found < 0).sum() > 3
    for place in np.ndindex(found.shape):
        f, s = fast[place], slow[place]
        expected = 1 - reach(epochs, f, max(s)) / reach(epochs, s, max(s))
        assert found[place] == pytest.approx(expected, abs=1e-12)


def test_saved_is_that_of_the_mean_curves():
    rng = np.random.default_rng(2)
    steps = np.array([-9, -7, -6, -5, -4, -3.0])
    fast, slow = (steps + rng.normal(0, 0.1, (5, 6)) + up for up in (1, 0))
    found = compare.saved(run_of(EPOCHS, fast), run_of(EPOCHS, slow))
    level = slow.mean(0).max()
    expected = 1 - reach(EPOCHS, fast.mean(0), level) / reach(EPOCHS, slow.mean(0), level)
    assert found.value == pytest.approx(expected) and found.trials == 5
    assert found.low < found.value < found.high < 1
    train = compare.saved(run_of(EPOCHS, fast), run_of(EPOCHS, slow), "train")
    np.testing.assert_allclose(train, found)  # one nat higher, both


def test_saved_compares_common_epochs_and_trials_alive_in_both():
    fast = [[-9, -5, 0, -3, -1], [-9, -5, 0, NAN, NAN], [-9, -5, 0, -3, -1]]
    slow = [[-9, -6, -5, -3], [-9, -6, -5, 99], [-9, -6, -5, NAN]]
    runs = run_of([0, 2, 3, 4, 6], fast), run_of([0, 2, 4, 6], slow)
    assert compare.saved(*runs) == pytest.approx((1 - 4 / 6, NAN, NAN, 1), nan_ok=True)


def test_never_is_a_value_of_an_interval():
    """Without its first trial the mean of the fast curve does not reach the level."""
    slow = run_of([0, 10], [[-9, -3]] * 4)
    sometimes = compare.saved(run_of([0, 10], [[-9, 9]] + [[-9, -4]] * 3), slow)
    assert sometimes.low == -INF and 0 < sometimes.value < sometimes.high < 1
    never = compare.saved(run_of([0, 10], [[-9, -4]] * 4), slow)
    assert never == Estimate(-INF, -INF, -INF, 4)


# ------------------------------------------------------------------ one number a trial


def test_areas_leave_the_start_out():
    """Trapezoids one by one, over the length from the first evaluation after the start."""
    run = run_of(EPOCHS, VALUES)
    for part, up in (("test", 0), ("train", 1)):
        expected = []
        for values in VALUES:
            total = 0
            for k in range(1, len(EPOCHS) - 1):
                total += (values[k] + values[k + 1]) / 2 * (EPOCHS[k + 1] - EPOCHS[k])
            expected.append(total / 7 + up)
        np.testing.assert_allclose(compare.areas(run, part), expected)
    assert np.isnan(compare.areas(run)).tolist() == [False, False, True]
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


@pytest.mark.parametrize("step", [2, 0.5, 0.1])
def test_roughness_is_of_evenly_spaced_evaluations(step):
    epochs = [step * epoch / 2 for epoch in EPOCHS]
    found = compare.roughness(run_of(epochs, VALUES))
    second = np.array([[-7 + 2 * 4 - 3, -4 + 2 * 3 - 3.5], [-6 + 2 * 5 - 1, -5 + 2 * 1 - 2]])
    expected = np.abs(second[:, 0] - second[:, 1]) / np.sqrt(2)
    np.testing.assert_allclose(found, [*expected, NAN])
    np.testing.assert_allclose(compare.roughness(run_of(epochs, VALUES), "train"), found)


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


def test_first_trial_alone():
    """Its curve as far as the other run goes, the end included; it counts as one trial."""
    run = run_of(EPOCHS, VALUES)
    for first, last, expected in ((0, {}, EPOCHS), (0, {"epochs": 4}, [0, 1, 2, 4])):
        one = compare.first_trial(run, **last)
        epochs, values = compare.curves(one)
        assert epochs.tolist() == expected and set(one.curve.trial) == {first}
        np.testing.assert_array_equal(values, [VALUES[0][: len(expected)]])
        assert one.settings == run.settings | {"trials": 1}
    assert run.settings["trials"] == 3 and len(run.curve.trial.unique()) == 3
    later = run._replace(curve=run.curve[run.curve.trial > 0])  # whatever its number is
    np.testing.assert_array_equal(compare.curves(compare.first_trial(later))[1], VALUES[1:2])


# --------------------------------------------------------------------------- intervals

PAIRED = (compare.difference, compare.ratio)


@pytest.mark.parametrize("statistic", [compare.mean, compare.maximum])
def test_one_trial_has_no_interval_and_none_no_value(statistic):
    np.testing.assert_equal(statistic(np.array([-3.0, NAN])), Estimate(-3.0, NAN, NAN, 1))
    np.testing.assert_equal(statistic(np.array([NAN])), Estimate(NAN, NAN, NAN, 0))


def test_one_pair_has_no_interval():
    one, other = np.array([6.0]), np.array([2.0])
    np.testing.assert_equal(compare.difference(one, other), Estimate(4, NAN, NAN, 1))
    np.testing.assert_equal(compare.ratio(one, other), Estimate(3, NAN, NAN, 1))
    np.testing.assert_equal(compare.range_of_means([one, other]), Estimate(4, NAN, NAN, 1))


def test_a_shift_of_all_pairs_is_found_exactly():
    trials = np.random.default_rng(3).integers(-99, 0, 10).astype(float)
    assert compare.difference(trials + 0.5, trials) == Estimate(0.5, 0.5, 0.5, 10)
    assert compare.ratio(4 * trials, trials) == Estimate(4, 4, 4, 10)
    assert compare.range_of_means([trials, trials + 2, trials + 0.5]) == Estimate(2, 2, 2, 10)


def test_a_diverged_trial_leaves_its_pair_out():
    one, other = np.array([1.0, 2, NAN, 4]), np.array([3.0, NAN, 5, 8])
    assert compare.difference(one, other)[::3] == (-3, 2)
    assert compare.ratio(one, other)[::3] == (2.5 / 5.5, 2)
    assert compare.range_of_means([one, other])[::3] == (3, 2)


def test_pairs_narrow_the_interval():
    """Trials that share their start and the order of the images are correlated."""
    rng = np.random.default_rng(4)
    shared = rng.normal(size=50)
    one, other = (shared + rng.normal(0, 0.1, 50) for _ in range(2))
    paired, mixed = compare.difference(one, other), compare.difference(one, rng.permutation(other))
    assert paired.value == pytest.approx(mixed.value)
    assert width(paired) < width(mixed) / 5


def test_width_is_that_of_the_normal_distribution():
    values = np.random.default_rng(5).normal(size=1000)
    found = compare.mean(values)
    error = 1.959964 * values.std() / np.sqrt(1000)
    assert found.value == pytest.approx(values.mean()) and found.trials == 1000
    assert found.low == pytest.approx(values.mean() - error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + error, abs=0.1 * error)


def test_interval_of_the_mean_covers_it_in_95_of_100_data_sets():
    """A percentile interval of 25 trials covers a little less."""
    data_sets = np.random.default_rng(6).normal(size=(400, 25))
    found = [compare.mean(values) for values in data_sets]
    covered = np.mean([estimate.low <= 0 <= estimate.high for estimate in found])
    assert 0.90 < covered < 0.97


def test_statistics_other_than_the_mean():
    one, other = np.array([1.0, 3, 8]), np.array([2.0, 4, 6])
    assert compare.ratio(one, other, compare.spread).value == pytest.approx(np.sqrt(13) / 2)
    assert compare.difference(one, other, np.max).value == 2
    assert compare.maximum(one)[::2] == (8, 8)


@pytest.mark.parametrize("compared", PAIRED)
def test_different_numbers_of_trials_are_refused(compared):
    with pytest.raises(ValueError, match="3 and 4 trials cannot be compared in pairs"):
        compared(np.zeros(3), np.zeros(4))


def test_runs_of_different_numbers_of_trials_are_refused():
    with pytest.raises(ValueError, match="2 and 3 trials"):
        compare.saved(run_of([0, 1], [[-2, -1]] * 2), run_of([0, 1], [[-2, -1]] * 3))


def test_a_run_without_validation_has_only_its_end():
    table = compare.early_stopping(run_of([1, 2], [[-5.0, -4.0], [-6.0, -7.0]]))
    assert table.test_end.tolist() == [-4.0, -7.0] and table.train_end.tolist() == [-3.0, -6.0]
    assert table[["epoch", "train", "valid", "test"]].isna().to_numpy().all()


# --------------------------------------------------------------- which likelihoods are judged


def with_trusted(run, less, agrees=1.0, bound=1.0):
    """The run by AIS, its trusted log-likelihoods so many nats below the plain ones."""
    curve = run.curve.assign(log_z=100.0, trusted_log_z=100.0 + less, trusted_agrees=agrees)
    curve = curve.assign(bound=curve.trusted_log_z - bound)
    trusted = {f"trusted_{part}": curve[part] - less for part in ("train", "test")}
    return run._replace(curve=curve.assign(**trusted), settings=run.settings | {"ais": {}})


def test_trusted_likelihoods_are_judged():
    run = with_trusted(run_of(EPOCHS, VALUES), 3)
    for part, more in (("test", 0), ("train", 1)):
        _, values = compare.curves(run, part)
        np.testing.assert_array_equal(values, np.array(VALUES, float) - 3 + more)
    np.testing.assert_array_equal(compare.finals(run), [-6.5, -5, NAN])
    assert compare.doubts(run) == ""


def test_plain_ais_alone_is_doubted_and_exact_is_not():
    """Also where the trusted estimate is there at some points only: no mixture of the two."""
    plain = run_of(EPOCHS, VALUES, ais={})
    part = with_trusted(plain, 3)
    last = part.curve.epoch == EPOCHS[-1]
    names = [name for name in part.curve if "trusted" in name]
    part = part._replace(curve=part.curve.assign(**{n: part.curve[n].where(last) for n in names}))
    for run in (plain, part):
        assert "plain AIS alone" in compare.doubts(run)
        np.testing.assert_array_equal(compare.curves(run)[1], np.array(VALUES, float))
    assert compare.doubts(run_of(EPOCHS, VALUES)) == ""  # small: exact


def test_estimates_that_do_not_agree_are_doubted_unless_a_bound_is_near():
    assert compare.doubts(with_trusted(run_of([1, 2], [[-3, -2]]), 0, agrees=0.0)) == (
        "log Z doubtful at epoch 1, 2"
    )
    assert compare.doubts(with_trusted(run_of([1, 2], [[-3, -2]]), 0, 0.0, bound=0.2)) == ""
