"""log Z of a model that may have modes far from the data, which plain AIS does not see.

A bound that no sampling enters, the modes that chains, images and W itself lead to, and AIS from
several bases.
"""

from typing import NamedTuple

import numpy as np

from .device import array_module, to_host
from .engines.plain import PLAIN
from .log_z import MIN_ESS, annealed, converted
from .philox import Stream
from .philox import key as key_of
from .rbm import (
    hidden_probability,
    log_unnormalized,
    logit_of_mean,
    visible_probability,
)


class TrustedLogZ(NamedTuple):
    """log Z of one model, from several bases of AIS, with a bound that no sampling enters."""

    value: float
    standard_error: float
    effective_sample_size: float  # of the particles of all bases
    bound: float  # log Z is at least this
    bases: dict  # name -> log Z by it alone, its error and effective sample size, its part of log Z
    mode: np.ndarray  # (m,) mean of the mean-field distribution of the largest weight

    @property
    def agrees(self):
        """Whether enough particles carry it, and neither bound nor any base alone says more."""
        others = [(self.bound, 0.0), *(each[:2] for each in self.bases.values())]
        return self.effective_sample_size >= MIN_ESS and all(
            value - self.value <= max(AGREEMENT, 3 * np.hypot(error, self.standard_error))
            for value, error in others
        )


AGREEMENT = 0.5  # nats; what differs by less agrees
STEPS = 4  # of the search's chains, a temperature
IMAGES = 4  # that start as they are, a chain
DIRECTIONS = 16  # of the search, each with both signs
POPULATION = 48  # modes that are crossed
MODES = 6  # bases at most, besides the two means over images
DISTINCT = 0.05  # modes differ in at least this share of the pixels
LONGER, LONGEST = 4, 16  # times the temperatures of a base that is run again; at most
ERROR, ENOUGH = 0.15, 16  # no base is run again where log Z has less, or after so many times
# Iterations of mean field: until it shows which mode it goes to; of what is crossed; to the end.
TO_TELL, TO_CROSS, TO_THE_END = 20, 10, 100


def mean_field(theta, v, n_iterations=TO_THE_END, dtype=np.float64):
    """Lower bounds on log Z of R models, one from each start, by mean-field distributions.

    For q(v, h) with independent units, log Z ≥ E_q[−E(v, h)] + H(q). With the visible means p and
    the best hidden ones this is log p*(p) + H(p), where log p* is ``rbm.log_unnormalized``. Each
    iteration sets the hidden means to p(h | p) and then the visible ones to p(v | h), neither of
    which can lower the bound. It holds whatever v is, and of an image itself says log p*(v).

    Parameters
    ----------
    theta : Parameters
    v : array, (R, B, m)
        Where to start, states or means.
    dtype : type
        In which to compute. In float32 a bound is one but for roundings.

    Returns
    -------
    p : array, (R, B, m)
    bounds : array, (R, B), in nats
    """
    xp = array_module(theta.W)
    theta, p = converted(theta, dtype), v.astype(dtype)
    for _ in range(n_iterations):
        p = visible_probability(theta, hidden_probability(theta, p))
    q = 1 - p
    entropy = -(p * xp.log(xp.where(p > 0, p, 1)) + q * xp.log(xp.where(q > 0, q, 1))).sum(-1)
    return p, log_unnormalized(theta, p) + entropy


def trusted_log_z(theta, images, key, n_particles=100, n_temperatures=250, engine=PLAIN):
    """log Z of a model that may have modes far from the data, which plain AIS does not see.

    ``find_modes``, with a chain a particle and STEPS a temperature, tells where the model may have
    its weight. AIS then starts from several bases k: the mean of the images, that of the chains,
    and the best MODES distinct modes.

    Each sees its own surroundings well and others by chance. So the states are shared out among
    the bases, v to base k by φ_k(v) = q_k(v) / Σ_l q_l(v), q_k being the base's probability, and
    each estimates what is its own: where w are the weights of its particles v,
    E[w φ_k(v)] = Z E_p[φ_k]. The sum over k is unbiased for Z, as every base alone is. An
    unbiased estimate is e^a times too large with a probability of at most e^−a (Markov), while
    one that misses a mode is too small by as much as the mode weighs: hence a sum of all that is
    found, and ``agrees``, which asks whether any base alone or the bound says more.

    The base with the largest part is always run again, with LONGER times the temperatures, and then
    whichever has the largest error, until the sum has less than ERROR, or all bases together have
    had ENOUGH times the temperatures, and ``agrees``. (Which it is depends on what was found, which
    makes Z too small by about one in the particles, or less.) The bound is the largest of those of
    the modes, and from each base's heaviest particle, which may have found another.

    Parameters
    ----------
    theta : Parameters
        One model: arrays (1, …), prepared by the engine.
    images : array of uint8, (N, m)
        Training images, on the engine's device.
    key : array_like of uint64, shape (2,)

    Returns
    -------
    TrustedLogZ
    """
    xp = engine.xp
    how = n_particles, STEPS * n_temperatures, engine
    reached, modes, bounds = find_modes(theta, images, key, *how)
    means = {"data": to_host(images.mean(0, dtype=xp.float64)), "chains": reached.mean(0)}
    means |= {f"mode {number}": mode for number, mode in enumerate(modes, 1)}
    _, of_images = mean_field(theta, xp.asarray(np.round(modes))[None], 0)
    bound = max(*bounds, *to_host(of_images[0]))
    bases, spent, again = {}, 0, dict.fromkeys(means, 1)  # name -> times the temperatures
    while again:
        heaviest = []
        for name, times in again.items():
            how = key_of(key.tolist(), name, times), n_particles, times * n_temperatures, engine
            bases[name], particle = _from_base(theta, means, name, times, *how)
            heaviest.append(particle)
            spent += times
        _, of_heaviest = mean_field(theta, xp.asarray(np.stack(heaviest))[None])
        bound = float(max(bound, *to_host(of_heaviest[0])))
        found, variances = _sum_of(bases, bound, modes[0])
        again = _longer(bases, variances, found, spent)
    return found


class _Base(NamedTuple):
    """What AIS from one base says."""

    times: int  # the temperatures
    alone: tuple  # log Z by it alone, its standard error and effective sample size
    terms: np.ndarray  # (n_particles,) log of w φ_k(v) / n_particles

    @property
    def part(self):
        """Log of its part of Z."""
        return float(np.logaddexp.reduce(self.terms))


def _from_base(theta, means, name, times, key, n_particles, n_temperatures, engine):
    """A ``_Base``, and its heaviest particle (m,)."""
    how = n_particles, n_temperatures, None, engine
    alone, v, weights = annealed(theta, means[name], [key], *how)
    v = to_host(v[0]).astype(np.float64)
    logits = np.stack([logit_of_mean(mean) for mean in means.values()])
    log_q = v @ logits.T - np.logaddexp(0, logits).sum(1)
    share = log_q[:, [*means].index(name)] - np.logaddexp.reduce(log_q, 1)
    terms = share + weights[0] - np.log(n_particles)
    alone = tuple(float(value[0]) for value in alone)
    return _Base(times, alone, terms), v[weights[0].argmax()]


def _sum_of(bases, bound, mode):
    """The estimate, and what each base adds to its variance."""
    value = float(np.logaddexp.reduce([base.part for base in bases.values()]))
    shares = {name: np.exp(base.terms - value) for name, base in bases.items()}  # their sum is 1
    variances = {name: len(each) * each.var(ddof=1) for name, each in shares.items()}
    error = float(np.sqrt(sum(variances.values())))
    ess = float(1 / sum((each**2).sum() for each in shares.values()))
    said = {name: (*base.alone, base.part) for name, base in bases.items()}
    return TrustedLogZ(value, error, ess, bound, said, mode), variances


def _longer(bases, variances, found, spent):
    """Which base is to be run again, and how long; {}: none."""
    largest = max(bases, key=lambda name: bases[name].part)
    if bases[largest].times == 1:
        return {largest: LONGER}
    able = [name for name, base in bases.items() if base.times < LONGEST]
    if not able or (found.agrees and (found.standard_error <= ERROR or spent >= ENOUGH)):
        return {}
    worst = max(able, key=variances.get)
    return {worst: LONGER * bases[worst].times}


def find_modes(theta, images, key, n_chains, n_steps, engine):
    """Where a model may have its weight, in the data or far from them.

    Mean-field distributions lead to modes from where chains are after ``n_steps`` that begin in
    training images and in noise of every density; from other images as they are; and from what
    a direction of W turns on, a right singular vector with either sign, in which large weights of
    many hidden units add up. The best POPULATION of them are crossed, which leads to others that
    nothing else leads to: by what is on in both of a pair, or in one and not in the other, and from
    halfway between them. The best of all are finished.

    Returns
    -------
    reached : ndarray of float64, (n_chains, m)
        Where the chains are: the first half those from images.
    modes : ndarray of float64, (MODES or fewer, m)
        Means of distinct mean-field distributions, that with the largest weight first.
    bounds : ndarray of float64
        log Z is at least each of them, one a mode.
    """
    xp, m = engine.xp, theta.W.shape[2]
    stream, half = Stream([key_of(key.tolist(), "search")], xp), n_chains // 2
    rows = (stream.uniform(1, half + IMAGES * n_chains)[0, 0] * len(images)).astype(xp.int64)
    density = stream.uniform(1, n_chains - half)[0].T
    noise = (stream.uniform(n_chains - half, m)[0] < density).astype(xp.uint8)
    starts = xp.concatenate([images[rows[:half]], noise])
    chain = engine.chain(theta, engine.states(starts[None]), stream)
    for _ in range(n_steps):
        chain.step()
    reached = to_host(chain.images()[0])
    directions = np.linalg.svd(to_host(theta.W[0]), full_matrices=False)[2][:DIRECTIONS]
    starts = [reached, to_host(images[rows[half:]]), directions > 0, directions < 0]
    modes = _best_distinct(theta, starts, TO_TELL, POPULATION)
    one, other = (modes[each] for each in np.triu_indices(len(modes), 1))
    both = one * other
    crossed = [modes, both, one - both, other - both, (one + other) / 2]
    modes = _best_distinct(theta, crossed, TO_CROSS, POPULATION)
    modes = _best_distinct(theta, [modes], TO_THE_END, MODES)
    _, bounds = mean_field(theta, xp.asarray(modes)[None], 0)  # now in float64
    return reached.astype(np.float64), modes, to_host(bounds[0])


def _best_distinct(theta, starts, n_iterations, n):
    """The means of ``n`` distinct mean-field distributions, those with the largest weight first.

    ``starts`` is a list of NumPy arrays (B, m).
    """
    starts = array_module(theta.W).asarray(np.concatenate(starts).astype(np.float32))
    p, bounds = mean_field(theta, starts[None], n_iterations, np.float32)
    p, weights = to_host(p[0]).astype(np.float64), to_host(weights_of(theta, p, bounds)[0])
    order = np.argsort(-weights, kind="stable")
    distinct = [order[0]]
    for row in order[1:]:
        if len(distinct) == n:
            break
        apart = np.abs(np.round(p[distinct]) - np.round(p[row])).mean(1)
        if (apart >= DISTINCT).all():
            distinct.append(row)
    return p[distinct]


def weights_of(theta, p, bounds):
    """Estimates of modes' log-weights, of the shape of ``bounds``, by mean-field distributions.

    What a bound lacks is more where a mode is broad: the next term of Plefka's expansion is
    ½ Σ_ij W_ij² Var h_i Var v_j.
    """
    h = hidden_probability(theta, p)
    return bounds + ((h * (1 - h)) @ theta.W**2 * (p * (1 - p))).sum(-1) / 2


def missed(log_z, standard_error, other, other_error, bound=-np.inf):
    """Whether an estimate misses some of log Z: another one or a bound says more (nats)."""
    error = np.maximum(AGREEMENT, 3 * np.hypot(standard_error, other_error))
    return (other - log_z > error) | refuted(log_z, bound)


def refuted(log_z, bound):
    """Whether a bound that no sampling enters says more than an estimate of log Z."""
    return bound - log_z > AGREEMENT
