"""The five learning algorithms: one parameter update on a mini-batch, each beside its pseudo-code.

Every algorithm is a pure function

    step(theta, memory, v, hyper, stream, engine) -> theta, memory

``theta`` are the Parameters of R models, ``v`` (R, B, m) their mini-batches, ``hyper`` a
Hyperparameters, ``stream`` the random numbers, and ``engine`` computes (engine.py says what each
of its operations means). ``memory`` holds what an algorithm keeps from one mini-batch to the
next: named arrays with a leading replica axis, empty before the first.

Each is written as a generator: where the pseudo-code runs Gibbs chains, it yields the model, the
states to start from, the number of steps and, where it has it, p(h | v); and gets the states ṽ in
the end and p(h | ṽ). So the chains of several algorithms can run side by side: ``together``.

    name      algorithm                        memory
    cd        contrastive divergence CD-K      nothing
    pcd       persistent CD-K                  the chains
    cg        centered gradient dd_s^b         the offsets μ, λ
    sdcp      S-DCP                            nothing
    sdcp_d    S-DCP-D                          the averaged diagonal of the Hessian
"""

from functools import wraps
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from .backend import array_module
from .engine import PLAIN
from .rbm import Parameters

LABELS = {"cd": "CD", "pcd": "PCD", "cg": "CG", "sdcp": "S-DCP", "sdcp_d": "S-DCP-D"}


class Hyperparameters(NamedTuple):
    """What an update needs to know. The arrays hold one value for each of the R replicas."""

    learning_rate: object  # η, (R,)
    epsilon: object  # ε of S-DCP-D, (R,)
    lambda_hessian: object  # λ_H of S-DCP-D, (R,); 0 is the paper's algorithm to the letter
    n_gibbs_steps: int  # K of CD, PCD and CG; K′ of S-DCP and S-DCP-D
    n_inner_iterations: int  # d of S-DCP and S-DCP-D
    sliding_factor: float  # ν_μ = ν_λ of CG
    train_mean: object  # μ₀ of CG, (m,)

    def select(self, rows):
        """The hyperparameters of the replicas ``rows`` alone."""
        return self._replace(
            learning_rate=self.learning_rate[rows],
            epsilon=self.epsilon[rows],
            lambda_hessian=self.lambda_hessian[rows],
        )


def _algorithm(generator):
    """The step of an algorithm that yields its chains: a function that runs them as they come."""

    @wraps(generator)
    def step(theta, memory, v, hyper, stream, engine=PLAIN):
        work = generator(theta, memory, v, hyper, engine)
        try:
            models, states, n_steps, p = next(work)
            while True:
                ends = engine.gibbs(models, states, n_steps, stream, p)
                models, states, n_steps, p = work.send(ends)
        except StopIteration as end:
            return end.value

    step.generator = generator
    return step


@_algorithm
def cd(theta, memory, v, hyper, engine):
    """Contrastive divergence: K Gibbs steps from the data, then θ ← θ + η(∇g − f̂′)."""
    p = engine.hidden_probability(theta, v)
    v_model, p_model = yield theta, v, hyper.n_gibbs_steps, p
    gradient_g = engine.statistics(theta, v, p)
    gradient_f = engine.statistics(theta, v_model, p_model)
    return engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f), memory


@_algorithm
def pcd(theta, memory, v, hyper, engine):
    """Persistent CD: as CD, but the chains go on from where the last mini-batch left them.

    There are as many chains as images in the first mini-batch, where they start.
    """
    chain, p_model = yield theta, memory.get("chain", v), hyper.n_gibbs_steps, None
    gradient_g = engine.statistics(theta, v, engine.hidden_probability(theta, v))
    gradient_f = engine.statistics(theta, chain, p_model)
    return engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f), {"chain": chain}


@_algorithm
def cg(theta, memory, v, hyper, engine):
    """Centered gradient, Algorithm 1 (dd_s^b) of Melchior et al. (JMLR 17:99), samples from CD-K.

    The offsets slide before the gradient is taken: μ ← (1−ν)μ + ν⟨v⟩, λ ← (1−ν)λ + ν⟨p(h|v)⟩.
    In the parameters of a plain RBM the centered gradient is, with ∇ = ∇g − f̂′,

        dW = ∇W − λ ∇bᵀ − ∇c μᵀ,   db = ∇b − dWᵀλ,   dc = ∇c − dW μ.
    """
    p = engine.hidden_probability(theta, v)
    v_model, p_model = yield theta, v, hyper.n_gibbs_steps, p
    gradient_g = engine.statistics(theta, v, p)
    gradient_f = engine.statistics(theta, v_model, p_model)

    nu = hyper.sliding_factor
    if memory:
        mu, lam = memory["mu"], memory["lam"]
    else:
        xp = array_module(theta.b)
        mu, lam = xp.zeros_like(theta.b) + hyper.train_mean, xp.full_like(theta.c, 0.5)
    mu = (1 - nu) * mu + nu * gradient_g.b
    lam = (1 - nu) * lam + nu * gradient_g.c

    gradient = gradient_g.map(lambda g, f: g - f, gradient_f)
    dW = gradient.W - lam[:, :, None] * gradient.b[:, None, :]
    dW -= gradient.c[:, :, None] * mu[:, None, :]
    db = gradient.b - (lam[:, None, :] @ dW)[:, 0]
    dc = gradient.c - (dW @ mu[:, :, None])[..., 0]
    theta = engine.ascend(theta, hyper.learning_rate, Parameters(dW, db, dc))
    return theta, {"mu": mu, "lam": lam}


@_algorithm
def sdcp(theta, memory, v, hyper, engine):
    """S-DCP: ∇g once, at θ^(t); then d steps of gradient descent on the convex f(θ̃) − θ̃ᵀ∇g.

    The chain of each inner step starts where that of the last one ended; the first at the data.
    """
    p = engine.hidden_probability(theta, v)
    gradient_g = engine.statistics(theta, v, p)
    v_model = v
    for _ in range(hyper.n_inner_iterations):
        v_model, p_model = yield theta, v_model, hyper.n_gibbs_steps, p
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta = engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f)
        p = None  # θ̃ has changed: p(h | ṽ) must be computed again
    return theta, memory


@_algorithm
def sdcp_d(theta, memory, v, hyper, engine):
    """S-DCP-D: S-DCP with each parameter's step divided by its diagonal Hessian element plus ε.

    The Hessian of f is the covariance of ∇E, and its diagonal G(1 − G) with G = E[−∇E], which is
    f̂′: the samples that give the gradient give the diagonal too. It is averaged over the
    updates with memory λ_H, H_t = λ_H H_{t−1} + (1 − λ_H) H̃_t.
    """
    p = engine.hidden_probability(theta, v)
    gradient_g = engine.statistics(theta, v, p)
    hessian = Parameters(memory["H_W"], memory["H_b"], memory["H_c"]) if memory else None
    eta, epsilon, lam = hyper.learning_rate, hyper.epsilon, hyper.lambda_hessian
    v_model = v
    for _ in range(hyper.n_inner_iterations):
        v_model, p_model = yield theta, v_model, hyper.n_gibbs_steps, p
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta, hessian = engine.ascend_scaled(
            theta, eta, gradient_g, gradient_f, hessian, lam, epsilon
        )
        p = None
    return theta, {"H_W": hessian.W, "H_b": hessian.b, "H_c": hessian.c}


STEPS = {"cd": cd, "pcd": pcd, "cg": cg, "sdcp": sdcp, "sdcp_d": sdcp_d}


def together(names, theta, memories, v, hypers, stream, engine=PLAIN):
    """One update of several algorithms, each a block of the replicas, their chains side by side.

    As each ``STEPS[name]`` alone, with the same random numbers, but that a GPU draws the chains of
    all in the same launches. All need the same number of Gibbs steps in all, d K′ = K.

    Parameters
    ----------
    names : list of str
    theta, v
        Of all replicas, block after block.
    memories : list of dict
    hypers : list of Hyperparameters
        Their arrays say how many replicas a block has.

    Returns
    -------
    theta, list of dict

    Raises
    ------
    ValueError
        If the numbers of Gibbs steps differ.
    """
    ends = list(accumulate(len(hyper.learning_rate) for hyper in hypers))
    blocks = [slice(*pair) for pair in pairwise([0, *ends])]
    works = [
        STEPS[name].generator(theta.select(block), memory, v[block], hyper, engine)
        for name, block, memory, hyper in zip(names, blocks, memories, hypers, strict=True)
    ]
    chains, finished = [list(next(work)[:3]) for work in works], {}
    while not finished:
        n_steps = min(left for _, _, left in chains)
        _run_chains(chains, blocks, n_steps, stream, engine)
        for number, (work, (models, states, left)) in enumerate(zip(works, chains, strict=True)):
            if left == 0:
                try:
                    ends = states, engine.hidden_probability(models, states)
                    chains[number] = list(work.send(ends)[:3])
                except StopIteration as end:
                    finished[number] = end.value
    if len(finished) < len(works):
        raise ValueError("algorithms side by side need the same number of Gibbs steps in all")
    thetas, memories = zip(*(finished[number] for number in range(len(works))), strict=True)
    return engine.join(thetas), list(memories)


def _run_chains(chains, blocks, n_steps, stream, engine):
    """Move the chains [models, states, steps left] of all blocks on by ``n_steps``."""
    position = stream.position
    # Persistent chains are as many as the first mini-batch had rows; the last may have fewer.
    for n_rows in sorted({states.shape[1] for _, states, _ in chains}):
        members = [n for n, (_, states, _) in enumerate(chains) if states.shape[1] == n_rows]
        numbers = stream
        if len(members) < len(chains):
            numbers = stream.select(np.r_[tuple(blocks[n] for n in members)])
        numbers.position = position
        models = engine.join([chains[n][0] for n in members])
        states = engine.xp.concatenate([chains[n][1] for n in members])
        chain, first = engine.chain(models, states, numbers), 0
        for _ in range(n_steps):
            chain.step()
        for n in members:
            count = blocks[n].stop - blocks[n].start
            chains[n][1:] = chain.v[first : first + count], chains[n][2] - n_steps
            first += count
    stream.position = position + 2 * n_steps
