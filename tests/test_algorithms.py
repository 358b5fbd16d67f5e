"""Each algorithm against the paper's pseudo-code as literal loops, and gradients by enumeration."""

import math

import numpy as np
import pytest
from conftest import all_states, joint_log_weights, joint_probabilities, random_bits, random_models
from scipy.special import logsumexp

from sdcpd.algorithms import ALGORITHMS, Hyperparameters
from sdcpd.philox import Stream, key
from sdcpd.rbm import Parameters, hessian_diagonal

M, N = 4, 3  # visible and hidden units of the small models
V, H = all_states(M), all_states(N)


def hyperparameters(dtype=np.float64):
    """Of three replicas, other values in each, so that a mix-up shows; a λ_H is the paper's 0."""
    return Hyperparameters(
        learning_rate=np.array([0.1, 0.5, 0.3], dtype),
        epsilon=np.array([0.1, 0.05, 0.2], dtype),
        lambda_hessian=np.array([0, 0.9, 0.5], dtype),
        n_gibbs_steps=2,
        n_inner_iterations=3,
        sliding_factor=0.1,
        train_mean=np.linspace(0.2, 0.7, M).astype(dtype),
    )


def keys(replicas):
    return [key("chain", replica) for replica in range(replicas)]


def run(name, theta, batches, hyper, chain_keys):
    """A few mini-batches in a row: the models after each."""
    stream, memory, after = Stream(chain_keys, np), None, []
    for v in batches:
        theta, memory = ALGORITHMS[name].step(theta, memory, v, hyper, stream)
        after.append(theta)
    return after


# ------------------------------------------- the pseudo-code, one model, sample by sample
#
# θ is one flat vector [W row by row, b, c]. The uniforms of a Gibbs step are drawn for the whole
# mini-batch, the hidden units' before the visible units', as the package draws them.


def flat(theta, replica):
    return np.concatenate([np.asarray(a[replica], np.float64).ravel() for a in theta])


def unflat(theta):
    return theta[: N * M].reshape(N, M), theta[N * M : N * M + M], theta[N * M + M :]


def logistic(x):
    return 1 / (1 + math.exp(-x))


def p_hidden(theta, v):
    W, _, c = unflat(theta)
    return [logistic(c[i] + sum(W[i, j] * v[j] for j in range(M))) for i in range(N)]


def p_visible(theta, h):
    W, b, _ = unflat(theta)
    return [logistic(b[j] + sum(W[i, j] * h[i] for i in range(N))) for j in range(M)]


def f_prime(theta, v):
    """∇g at v, and f̂′ where v is a sample: −E_{p(h|v)}[∇E(v, h)]."""
    p = p_hidden(theta, v)
    return np.array([p_i * v_j for p_i in p for v_j in v] + list(v) + p)


def chains(theta, V_T, n_steps, stream, shift_v=0, shift_h=0):
    """``n_steps`` Gibbs steps of each chain; the shifts are the offsets of a centered RBM."""
    shape_h, shape_v = (len(V_T), N), (len(V_T), M)
    draws = [(stream.uniform(*shape_h)[0], stream.uniform(*shape_v)[0]) for _ in range(n_steps)]
    ends = []
    for s, v in enumerate(V_T):
        for u_h, u_v in draws:
            p = p_hidden(theta, v - shift_v)
            h = np.array([float(u_h[s, i] < p[i]) for i in range(N)])
            p = p_visible(theta, h - shift_h)
            v = np.array([float(u_v[s, j] < p[j]) for j in range(M)])
        ends.append(v)
    return ends


def literal_cd(theta, state, batch, hp, stream):
    samples = chains(theta, batch, hp.n_gibbs_steps, stream)
    data = sum(f_prime(theta, v) for v in batch) / len(batch)
    model = sum(f_prime(theta, v) for v in samples) / len(batch)
    return theta + hp.learning_rate * (data - model)


def literal_pcd(theta, state, batch, hp, stream):
    """The chains go on where they stopped; in Boltzmann.jl#47 they were never kept."""
    state["chains"] = chains(theta, state.get("chains", batch), hp.n_gibbs_steps, stream)
    data = sum(f_prime(theta, v) for v in batch) / len(batch)
    model = sum(f_prime(theta, v) for v in state["chains"]) / len(state["chains"])
    return theta + hp.learning_rate * (data - model)


def literal_cg(theta, state, batch, hp, stream):
    """Algorithm 1 (dd_s^b) of Melchior et al., in the parameters of the centered RBM

    E(v, h) = −(v − μ)ᵀb′ − c′ᵀ(h − λ) − (h − λ)ᵀW(v − μ), so b = b′ − Wᵀλ and c = c′ − Wμ.
    """
    eta, nu = hp.learning_rate, hp.sliding_factor
    if not state:
        mu, lam = hp.train_mean, np.full(N, 0.5)
        W, b, c = unflat(theta)
        state.update(mu=mu, lam=lam, W=W, b=b + W.T @ lam, c=c + W @ mu)
    W, b, c, mu, lam = (state[name] for name in ("W", "b", "c", "mu", "lam"))
    centered = np.concatenate([W.ravel(), b, c])
    h_d = [np.array(p_hidden(centered, v - mu)) for v in batch]
    samples = chains(centered, batch, hp.n_gibbs_steps, stream, mu, lam)
    h_m = [np.array(p_hidden(centered, v - mu)) for v in samples]

    mu_new, lam_new = np.mean(batch, axis=0), np.mean(h_d, axis=0)
    b = b + nu * W.T @ (lam_new - lam)  # same distribution at the new offsets
    c = c + nu * W @ (mu_new - mu)
    mu, lam = (1 - nu) * mu + nu * mu_new, (1 - nu) * lam + nu * lam_new

    def mean_product(hs, vs):
        return sum(np.outer(h - lam, v - mu) for h, v in zip(hs, vs, strict=True)) / len(vs)

    W = W + eta * (mean_product(h_d, batch) - mean_product(h_m, samples))
    b = b + eta * (mu_new - np.mean(samples, axis=0))
    c = c + eta * (lam_new - np.mean(h_m, axis=0))
    state.update(mu=mu, lam=lam, W=W, b=b, c=c)
    return np.concatenate([W.ravel(), b - W.T @ lam, c - W @ mu])


def literal_sdcp(theta, state, batch, hp, stream):
    """Algorithm "S-DCP update", averaged over a mini-batch as Algorithm "S-DCP-D" is."""
    tilde, V_T = theta, batch
    for _ in range(hp.n_inner_iterations):
        V_T = chains(tilde, V_T, hp.n_gibbs_steps, stream)
        delta = np.zeros_like(theta)
        for v, data in zip(V_T, batch, strict=True):
            delta += f_prime(tilde, v) - f_prime(theta, data)
        tilde = tilde - hp.learning_rate * delta / len(batch)
    return tilde


def literal_sdcp_d(theta, state, batch, hp, stream):
    """Algorithm "S-DCP-D update for a mini-batch", with the average of H where λ_H > 0."""
    tilde, V_T = theta, batch
    for _ in range(hp.n_inner_iterations):
        delta, G_f = np.zeros_like(theta), np.zeros_like(theta)
        V_T = chains(tilde, V_T, hp.n_gibbs_steps, stream)
        for i in range(len(batch)):
            delta += f_prime(tilde, V_T[i]) - f_prime(theta, batch[i])
            G_f += f_prime(tilde, V_T[i])
        H_f = G_f / len(batch) * (1 - G_f / len(batch))
        lam = hp.lambda_hessian
        state["H"] = lam * state["H"] + (1 - lam) * H_f if state else H_f
        tilde = tilde - hp.learning_rate / (state["H"] + hp.epsilon) * delta / len(batch)
    return tilde


LITERAL = {
    "cd": literal_cd,
    "pcd": literal_pcd,
    "cg": literal_cg,
    "sdcp": literal_sdcp,
    "sdcp_d": literal_sdcp_d,
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 2e-5)])
@pytest.mark.parametrize("name", LITERAL)
def test_algorithm_is_the_papers_pseudo_code(name, dtype, tolerance):
    """Signs, where chains start, when θ̃ and H change, and what is kept between mini-batches.

    Three replicas with their own η, ε and λ_H; the last mini-batch is incomplete. In float64
    the centered gradient agrees with its reparameterised form to 1e-10. Compared in the end, when
    an algorithm that wrote over its models or images would have spoiled them.
    """
    theta = random_models(M, N, seed=1, replicas=3, dtype=dtype)
    batches = [random_bits(3, size, M, seed=size, dtype=dtype) for size in (8, 4, 2)]
    hyper = hyperparameters(dtype)
    after = run(name, theta, batches, hyper, keys(3))
    for r in range(3):
        expected, state, stream = flat(theta, r), {}, Stream([key("chain", r)], np)
        for update, v in enumerate(batches):
            start, batch = expected, list(v[r].astype(np.float64))
            expected = LITERAL[name](start, state, batch, hyper.select(r), stream)
            assert np.abs(expected - start).max() > 1e-3  # an update that does something
            np.testing.assert_allclose(flat(after[update], r), expected, atol=tolerance, rtol=0)
        assert after[-1].W.dtype == dtype


# -------------------------------------------------------------------- exact quantities


def exact_gradient_f(theta):
    """∇ log Z of one model: E[h vᵀ], E[v], E[h] by enumeration of p(v, h)."""
    p = joint_probabilities(theta)
    return Parameters(
        np.einsum("vh,hi,vj->ij", p, H, V)[None], (p.sum(1) @ V)[None], (p.sum(0) @ H)[None]
    )


@pytest.mark.parametrize("name", ["cd", "pcd"])
def test_mean_gradient_is_the_enumerated_one(name):
    """All of W, b and c; long chains. Catches a sign, sampled units mixed with means
    (yusugomori#31), and p(h) of the previous visible state (rbms#31), here off by 0.03."""
    n_chains = 40_000
    theta = random_models(M, N, seed=4)
    v = V[np.random.default_rng(5).choice(16, n_chains, p=np.arange(16) / 120)][None]
    hyper = hyperparameters()._replace(learning_rate=np.ones(1), n_gibbs_steps=30)
    (after,) = run(name, theta, [v], hyper, keys(1))

    p = joint_probabilities(theta)
    h_given_v = p / p.sum(1, keepdims=True)
    p_data = np.array([(v[0] == state).all(1).mean() for state in V])
    model, data = exact_gradient_f(theta), p_data[:, None] * h_given_v
    expected = Parameters(
        np.einsum("vh,hi,vj->ij", data, H, V) - model.W,
        p_data @ V - model.b,
        data.sum(0) @ H - model.c,
    )
    for got, old, gradient in zip(after, theta, expected, strict=True):
        np.testing.assert_allclose(got - old, gradient, atol=5 * 0.5 / np.sqrt(n_chains))


def test_hessian_diagonal_is_the_variance():
    """Diagonal of ∇²f = diagonal of the covariance of −∇E = G(1 − G), for W, b and c."""
    theta = random_models(M, N, seed=6)
    got = hessian_diagonal(exact_gradient_f(theta))
    p = joint_probabilities(theta)
    statistics = Parameters(
        np.einsum("hi,vj->vhij", H, V),
        np.broadcast_to(V[:, None], (16, 8, M)),
        np.broadcast_to(H[None], (16, 8, N)),
    )
    for diagonal, x in zip(got, statistics, strict=True):
        mean = np.tensordot(p, x, 2)
        np.testing.assert_allclose(diagonal[0], np.tensordot(p, (x - mean) ** 2, 2), rtol=1e-10)


def test_hessian_diagonal_is_the_second_derivative_of_log_z():
    """f = log Z: central differences in every single parameter."""
    theta = random_models(M, N, seed=7)
    got = hessian_diagonal(exact_gradient_f(theta))
    step = 1e-3
    for which, diagonal in enumerate(got):
        for index in np.ndindex(diagonal.shape):
            values = []
            for shift in (-step, 0, step):
                moved = [array.copy() for array in theta]
                moved[which][index] += shift
                values.append(logsumexp(joint_log_weights(moved)))
            second = (values[0] - 2 * values[1] + values[2]) / step**2
            assert abs(diagonal[index] - second) < 1e-6
