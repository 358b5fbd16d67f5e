"""The five learning algorithms: one parameter update on a mini-batch, each beside its pseudo-code.

Every algorithm is a pure function

    step(theta, state, v, hyper, stream, engine) -> theta, state

``theta`` are the Parameters of R models, ``v`` (R, B, m) their mini-batches, ``hyper`` a
Hyperparameters, ``stream`` the random numbers, and ``engine`` computes (engines/plain.py says what
each of its operations means). ``state`` is what an algorithm keeps from one mini-batch to the next:
a named tuple of arrays with a leading replica axis; None before the first, or where it keeps
nothing.

In the pseudo-code f̂′(θ, ṽ) = −E_{p(h|ṽ)}[∇E(ṽ, h)] (eq. 7) and ∇g (eq. 6) are means over the
mini-batch, ``engine.statistics``; the K transitions v → h → v of eq. 7 are ``engine.gibbs``.
``ALGORITHMS`` says of each how it is called, drawn and set.
"""

from collections.abc import Callable
from typing import NamedTuple

from .device import array_module
from .engines.plain import PLAIN
from .rbm import Parameters


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


def cd(theta, state, v, hyper, stream, engine=PLAIN):
    """Contrastive divergence CD-K (eqs. 6 and 7).

    ṽ ← K Gibbs steps from v;   θ ← θ + η (∇g(θ, v) − f̂′(θ, ṽ))
    """
    p = engine.hidden_probability(theta, v)
    v_model, p_model = engine.gibbs(theta, v, hyper.n_gibbs_steps, stream, p)
    gradient_g = engine.statistics(theta, v, p)
    gradient_f = engine.statistics(theta, v_model, p_model)
    return engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f), None


class Chains(NamedTuple):
    """What PCD keeps."""

    v: object  # the visible states of the persistent chains, (R, B, m)


def pcd(theta, state, v, hyper, stream, engine=PLAIN):
    """Persistent CD (Tieleman 2008): as CD, but the chains go on where they were left.

    ṽ ← K Gibbs steps from ṽ;   θ ← θ + η (∇g(θ, v) − f̂′(θ, ṽ))

    There are as many chains as images in the first mini-batch, where they start.
    """
    start = v if state is None else state.v
    v_model, p_model = engine.gibbs(theta, start, hyper.n_gibbs_steps, stream)
    gradient_g = engine.statistics(theta, v, engine.hidden_probability(theta, v))
    gradient_f = engine.statistics(theta, v_model, p_model)
    theta = engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f)
    return theta, Chains(v_model)


class Offsets(NamedTuple):
    """What CG keeps: the running means that it subtracts."""

    visible: object  # μ, (R, m)
    hidden: object  # λ, (R, n)


def cg(theta, state, v, hyper, stream, engine=PLAIN):
    """Centered gradient, Algorithm 1 (dd_s^b) of Melchior et al. (JMLR 17:99), samples from CD-K.

    The offsets slide before the gradient is taken: μ ← (1−ν)μ + ν⟨v⟩, λ ← (1−ν)λ + ν⟨p(h|v)⟩.
    In the parameters of a plain RBM the centered gradient is, with ∇ = ∇g − f̂′,

        dW = ∇W − λ ∇bᵀ − ∇c μᵀ,   db = ∇b − dWᵀλ,   dc = ∇c − dW μ;   θ ← θ + η (dW, db, dc)
    """
    p = engine.hidden_probability(theta, v)
    v_model, p_model = engine.gibbs(theta, v, hyper.n_gibbs_steps, stream, p)
    gradient_g = engine.statistics(theta, v, p)
    gradient_f = engine.statistics(theta, v_model, p_model)

    nu, xp = hyper.sliding_factor, array_module(theta.b)
    if state is None:
        state = Offsets(xp.zeros_like(theta.b) + hyper.train_mean, xp.full_like(theta.c, 0.5))
    mu = (1 - nu) * state.visible + nu * gradient_g.b
    lambda_ = (1 - nu) * state.hidden + nu * gradient_g.c

    gradient = gradient_g.map(lambda g, f: g - f, gradient_f)
    dW = gradient.W - lambda_[:, :, None] * gradient.b[:, None, :]
    dW -= gradient.c[:, :, None] * mu[:, None, :]
    db = gradient.b - (lambda_[:, None, :] @ dW)[:, 0]
    dc = gradient.c - (dW @ mu[:, :, None])[..., 0]
    theta = engine.ascend(theta, hyper.learning_rate, Parameters(dW, db, dc))
    return theta, Offsets(mu, lambda_)


def sdcp(theta, state, v, hyper, stream, engine=PLAIN):
    """S-DCP, Algorithm 1: d steps of gradient descent on the convex f(θ̃) − θ̃ᵀ∇g(θ) (eq. 9).

    θ̃ ← θ;  ṽ ← v
    d times:
        ṽ ← K′ Gibbs steps from ṽ, at θ̃
        θ̃ ← θ̃ − η (f̂′(θ̃, ṽ) − ∇g(θ, v))
    θ ← θ̃
    """
    p = engine.hidden_probability(theta, v)
    gradient_g = engine.statistics(theta, v, p)
    v_model = v
    for _ in range(hyper.n_inner_iterations):
        v_model, p_model = engine.gibbs(theta, v_model, hyper.n_gibbs_steps, stream, p)
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta = engine.ascend(theta, hyper.learning_rate, gradient_g, gradient_f)
        p = None  # θ̃ has changed: p(h | ṽ) must be computed again
    return theta, None


def sdcp_d(theta, state, v, hyper, stream, engine=PLAIN):
    """S-DCP-D, Algorithm 2: S-DCP with each parameter's step divided by its Hessian element.

    θ̃ ← θ;  ṽ ← v
    d times:
        ṽ ← K′ Gibbs steps from ṽ, at θ̃
        G ← f̂′(θ̃, ṽ);  H̃ ← G (1 − G)                 (the diagonal of eq. 10)
        H ← λ_H H + (1 − λ_H) H̃                       (eq. 12; with λ_H = 0 the pseudo-code)
        θ̃ ← θ̃ − η (G − ∇g(θ, v)) / (H + ε)            (eq. 11; elementwise)
    θ ← θ̃

    The Hessian of f is the covariance of ∇E (eq. 10): the samples that give the gradient give its
    diagonal too. ``state`` is H, shaped as the parameters are.
    """
    p = engine.hidden_probability(theta, v)
    gradient_g = engine.statistics(theta, v, p)
    v_model, eta = v, hyper.learning_rate
    for _ in range(hyper.n_inner_iterations):
        v_model, p_model = engine.gibbs(theta, v_model, hyper.n_gibbs_steps, stream, p)
        gradient_f = engine.statistics(theta, v_model, p_model)
        theta, state = engine.ascend_scaled(
            theta, eta, gradient_g, gradient_f, state, hyper.lambda_hessian, hyper.epsilon
        )
        p = None
    return theta, state


class Algorithm(NamedTuple):
    """All that the rest of the project knows of an algorithm."""

    step: Callable  # see above
    label: str  # as the paper calls it
    style: tuple  # colour, of Okabe & Ito's, and marker in every figure
    needs: tuple = ()  # hyperparameters besides the learning rate
    has_inner_loop: bool = False  # then it makes d iterations of K′ Gibbs steps, else one of K
    state: type | None = None  # of what it keeps between mini-batches

    @property
    def options(self):
        """Settings that not every algorithm has."""
        return (*self.needs, "n_inner_iterations") if self.has_inner_loop else self.needs


ALGORITHMS = {
    "cd": Algorithm(cd, "CD", ("#56B4E9", "v")),
    "pcd": Algorithm(pcd, "PCD", ("#CC79A7", "s"), state=Chains),
    "cg": Algorithm(cg, "CG", ("#E69F00", "^"), ("sliding_factor",), state=Offsets),
    "sdcp": Algorithm(sdcp, "S-DCP", ("#009E73", "o"), has_inner_loop=True),
    "sdcp_d": Algorithm(
        sdcp_d, "S-DCP-D", ("#000000", "D"), ("epsilon", "lambda_hessian"), True, Parameters
    ),
}
LABELS = {name: algorithm.label for name, algorithm in ALGORITHMS.items()}
