"""Average log-likelihood: mean over images of log Σ_h exp(−E(v, h)) − log Z; what a curve holds."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from .device import array_module, to_host
from .engines.plain import PLAIN, Engine
from .log_z import annealed_log_z, converted, exact_log_z
from .rbm import log_unnormalized
from .trusted import missed, trusted_log_z

CHUNK = 2**14  # images at a time, to bound memory


def average_log_likelihood(theta, images, log_z):
    """Average log-likelihood of R models on the rows of ``images`` (N, m); float64 (R,).

    Computed in the precision of ``theta``, summed in float64.
    """
    xp = array_module(theta.W)
    total = np.zeros(len(theta.W))
    for start in range(0, len(images), CHUNK):
        v = images[start : start + CHUNK].astype(theta.W.dtype)[None]
        for model in range(len(theta.W)):  # one at a time: v is shared, W is not
            one = theta.select(slice(model, model + 1))
            total[model] += float(log_unnormalized(one, v).sum(dtype=xp.float64))
    return total / len(images) - log_z


def images_of(dataset, xp):
    """The images of a dataset that are evaluated, on the device: part -> uint8 (N, m).

    train, test, and valid where there are any. What is one array there is one here.
    """
    train = xp.asarray(dataset.train)
    parts = {"train": train}
    parts["test"] = train if dataset.test is dataset.train else xp.asarray(dataset.test)
    return parts if dataset.valid is None else parts | {"valid": xp.asarray(dataset.valid)}


class Evaluator(NamedTuple):
    """What ``training.train`` calls at an evaluation point."""

    images: dict  # see images_of
    keys: Callable  # (replica, update) -> Philox key of an AIS estimate, uint64 (2,)
    # ``n_particles`` and ``n_temperatures`` of plain AIS, of which no base of the trusted estimate
    # has more to begin with; None enumerates, in float64.
    ais: dict | None = None
    report: Callable | None = None  # (float), called with the share of an estimate that is done
    engine: Engine = PLAIN
    # The updates after which plain AIS is made; None: all. The trusted estimate always is.
    plain_at: Collection | None = None
    note: Callable | None = None  # (replica, update, TrustedLogZ), called with every one

    def __call__(self, theta, replicas, update):
        """A dict for each model: train, test, valid if there is one, log_z, log_z_se, ess by
        plain AIS (or exact); and the same as ``trusted_…`` with the bound on log Z, and whether
        what is trusted agrees (1 or 0)."""
        theta = theta if self.ais else converted(theta, np.float64)
        means, train = {}, self.images["train"]  # of log p*(v)
        for part, images in self.images.items():
            known = part != "train" and images is train
            means[part] = means["train"] if known else average_log_likelihood(theta, images, 0)
        points = [{} for _ in replicas]
        keys = [self.keys(int(replica), update) for replica in replicas if self.ais]
        if self.ais is None or self.plain_at is None or update in self.plain_at:
            log_z = self._plain(theta, keys) if self.ais else exact_log_z(theta)
            values = {part: mean - log_z.value for part, mean in means.items()}
            values |= dict(zip(("log_z", "log_z_se", "ess"), log_z, strict=True))
            for row, point in enumerate(points):
                point |= {name: float(array[row]) for name, array in values.items()}
        for row, point in enumerate(points if self.ais else ()):
            found = self._trusted(theta.select(slice(row, row + 1)), keys[row])
            if self.note:
                self.note(int(replicas[row]), update, found)
            point |= {f"trusted_{p}": float(mean[row]) - found.value for p, mean in means.items()}
            names = "trusted_log_z", "trusted_log_z_se", "trusted_ess", "bound"
            point |= dict(zip(names, found, strict=False)) | {"trusted_agrees": +found.agrees}
        return points

    def _plain(self, theta, keys):
        mean = to_host(self.images["train"].mean(0, dtype=np.float64))
        return annealed_log_z(theta, mean, keys, **self.ais, report=self.report, engine=self.engine)

    def _trusted(self, theta, key):
        size = min(100, self.ais["n_particles"]), min(250, self.ais["n_temperatures"])
        return trusted_log_z(theta, self.images["train"], key, *size, self.engine)


def likelihoods(curve, part="test"):
    """What a curve, a DataFrame, is judged by: the trusted log-likelihoods, or the plain ones where
    plain AIS finds clearly more of log Z, as an estimate misses some of Z rather than makes it up.

    Of small models those that there are, as their log Z is exact.
    """
    trusted = curve.get(f"trusted_{part}")
    if trusted is None:
        return curve[part]
    ours, plain = ((curve[f"{name}log_z"], curve[f"{name}log_z_se"]) for name in ("trusted_", ""))
    return trusted.mask(missed(*ours, *plain), curve[part])
