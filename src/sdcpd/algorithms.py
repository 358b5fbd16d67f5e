"""The five learning algorithms: one parameter update on a mini-batch, each beside its pseudo-code.

Every algorithm is a pure function

    step(theta, memory, v, hyper, stream, engine) -> theta, memory

``theta`` are the Parameters of R models, ``v`` (R, B, m) their mini-batches, ``hyper`` a
Hyperparameters, ``stream`` the random numbers, and ``engine`` computes (engine.py says what each
of its operations means). ``memory`` holds what an algorithm keeps from one mini-batch to the
next: named arrays with a leading replica axis, empty before the first.

    name      algorithm                        memory
    cd        contrastive divergence CD-K      nothing
    pcd       persistent CD-K                  the chains
    cg        centered gradient dd_s^b         the offsets μ, λ
    sdcp      S-DCP                            nothing
    sdcp_d    S-DCP-D                          the averaged diagonal of the Hessian
"""

from typing import NamedTuple

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


def cd(theta, memory, v, hyper, stream, engine=PLAIN):
    """Contrastive divergence: K Gibbs steps from the data, then θ ← θ + η(∇g − f̂′)."""
    p = engine.hidden_probability(theta, v)
    v_model, p_model = engine.gibbs(theta, v, hyper.n_gibbs_steps, stream, p)
    gradient_g = engine.statistics(theta, v, p)
    gradient_f = engine.statistics(theta, v_model, p_model)
    return engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f), memory


def pcd(theta, memory, v, hyper, stream, engine=PLAIN):
    """Persistent CD: as CD, but the chains go on from where the last mini-batch left them.

    There are as many chains as images in the first mini-batch, where they start.
    """
    chain, p_model = engine.gibbs(theta, memory.get("chain", v), hyper.n_gibbs_steps, stream)
    gradient_g = engine.statistics(theta, v, engine.hidden_probability(theta, v))
    gradient_f = engine.statistics(theta, chain, p_model)
    return engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f), {"chain": chain}


def cg(theta, memory, v, hyper, stream, engine=PLAIN):
    """Centered gradient, Algorithm 1 (dd_s^b) of Melchior et al. (JMLR 17:99), samples from CD-K.

    The offsets slide before the gradient is taken: μ ← (1−ν)μ + ν⟨v⟩, λ ← (1−ν)λ + ν⟨p(h|v)⟩.
    In the parameters of a plain RBM the centered gradient is, with ∇ = ∇g − f̂′,

        dW = ∇W − λ ∇bᵀ − ∇c μᵀ,   db = ∇b − dWᵀλ,   dc = ∇c − dW μ.
    """
    p = engine.hidden_probability(theta, v)
    v_model, p_model = engine.gibbs(theta, v, hyper.n_gibbs_steps, stream, p)
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


def sdcp(theta, memory, v, hyper, stream, engine=PLAIN):
    """S-DCP: ∇g once, at θ^(t); then d steps of gradient descent on the convex f(θ̃) − θ̃ᵀ∇g.

    The chain of each inner step starts where that of the last one ended; the first at the data.
    """
    p = engine.hidden_probability(theta, v)
    gradient_g = engine.statistics(theta, v, p)
    v_model = v
    for _ in range(hyper.n_inner_iterations):
        v_model, p_model = engine.gibbs(theta, v_model, hyper.n_gibbs_steps, stream, p)
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta = engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f)
        p = None  # θ̃ has changed: p(h | ṽ) must be computed again
    return theta, memory


def sdcp_d(theta, memory, v, hyper, stream, engine=PLAIN):
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
        v_model, p_model = engine.gibbs(theta, v_model, hyper.n_gibbs_steps, stream, p)
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta, hessian = engine.ascend_scaled(
            theta, eta, gradient_g, gradient_f, hessian, lam, epsilon
        )
        p = None
    return theta, {"H_W": hessian.W, "H_b": hessian.b, "H_c": hessian.c}


STEPS = {"cd": cd, "pcd": pcd, "cg": cg, "sdcp": sdcp, "sdcp_d": sdcp_d}
