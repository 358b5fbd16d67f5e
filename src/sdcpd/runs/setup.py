"""What is trained: all that replicas share, what tells them apart, their random keys."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import data, engines, philox
from ..algorithms import Hyperparameters
from ..log_z import MAX_ENUMERATED
from ..rbm import initialize
from ..sources import source_hash
from ..training import Checkpoint, Task
from .runfile import PLAIN, joined, provenance
from .settings import RunError, evaluation_updates, plain_updates

# How long, how often and what has a place of its own: not of the settings in a fingerprint.
_ELSEWHERE = {"trials", "epochs", "evaluate", "dataset", "hyperparameters"}
# The settings that random keys are of which every algorithm of a trial has alike …
_ALIKE = {"init": ["n_hidden"], "order": [], "pixels": []}
# … and others, besides the hyperparameters.
_DIFFERENT = ["algorithm", "n_hidden", "n_gibbs_steps"]


class Replica(NamedTuple):
    """One of the models that are trained side by side."""

    hyperparameters: dict
    trial: int


class Setup:
    """What all replicas of a run or a sweep share.

    Parameters
    ----------
    settings : dict
        In canonical form; of a sweep with the hyperparameters of its first setting.
    backend_name : str
    data_folder : path
    """

    def __init__(self, settings, backend_name, data_folder):
        self.settings, self.engine = settings, engines.select(backend_name)
        self.dataset = data.load(settings["dataset"], data_folder)
        smaller = min(settings["n_hidden"], self.dataset.train.shape[1])
        if settings["ais"] is None and smaller > MAX_ENUMERATED:
            what = f"ais: null enumerates a layer of {smaller} units, at most {MAX_ENUMERATED}"
            raise RunError(f"{what}: give n_particles and n_temperatures")
        self.points = evaluation_updates(settings, len(self.dataset.train))
        self.plain_at = plain_updates(settings, len(self.dataset.train))
        self.train_mean = self.dataset.train.mean(0, dtype=np.float64)
        self.images_sha256 = [
            hashlib.sha256(np.ascontiguousarray(part)).hexdigest()
            for part in (*self.dataset[:3], self.dataset.grey)
            if part is not None
        ]
        s = settings
        self.title = f"{Path(s['dataset']).name} {s['algorithm']} {s['n_hidden']}h"

    def key(self, what, replica, *fields):
        """A random key of a replica: of its initial model, of the order of its images, of pixels
        drawn from grey levels, of its chains, or of its AIS."""
        s, named = self.settings, self.dataset.sha256 or self.settings["dataset"]
        given = [s[name] for name in _ALIKE.get(what, _DIFFERENT)]
        given += [] if what in _ALIKE else [replica.hyperparameters]
        return philox.key(s["seed"], what, named, *given, replica.trial, *fields)

    def keys(self, what, replicas):
        """Of several replicas, uint64 (R, 2)."""
        return np.array([self.key(what, replica) for replica in replicas])

    def initial_models(self, replicas):
        """See ``rbm.initialize``."""
        keys = self.keys("init", replicas)
        return initialize(self.train_mean, self.settings["n_hidden"], keys, self.engine.xp)

    def task(self, replicas, images):
        """What they learn, from training images that are on the engine's device."""
        s, xp, grey = self.settings, self.engine.xp, self.dataset.grey

        def each(name):
            return xp.asarray([r.hyperparameters.get(name, 0) for r in replicas], xp.float32)

        hyper = Hyperparameters(
            learning_rate=each("learning_rate"),
            epsilon=each("epsilon"),
            lambda_hessian=each("lambda_hessian"),
            n_gibbs_steps=s["n_gibbs_steps"],
            n_inner_iterations=s["n_inner_iterations"],
            sliding_factor=s["hyperparameters"].get("sliding_factor", 0),
            train_mean=xp.asarray(self.train_mean, xp.float32),
        )
        return Task(
            s["algorithm"],
            hyper,
            images if grey is None else xp.asarray(grey),
            s["batch_size"],
            self.points,
            order_keys=self.keys("order", replicas),
            chain_keys=self.keys("chain", replicas),
            pixel_keys=None if grey is None else self.keys("pixels", replicas),
            engine=self.engine,
        )

    def fingerprint(self, replicas):
        """Of everything that decides their models at any update: settings but for how long and how
        often, random keys, images, engine, and the code that trains."""
        settings = {n: value for n, value in self.settings.items() if n not in _ELSEWHERE}
        keys = [self.keys(what, replicas).tolist() for what in (*_ALIKE, "chain")]
        code = source_hash("training"), self.engine.name
        return _digest([settings, replicas, keys, self.images_sha256, *code])

    def checkpoint(self, replicas, folder):
        """With a name of its own: none takes another's place. None without a folder."""
        if folder is None:
            return None
        fingerprint = self.fingerprint(replicas)
        name = _digest([fingerprint, self.points, self.plain_at])[:12]
        path = folder / f"checkpoint-{name}.npz"
        return Checkpoint(path, fingerprint, source_hash("runs"), self._as_asked)

    def _as_asked(self, point):
        """Without plain AIS where a run of these settings makes none."""
        if self.settings["ais"] is None or point["status"] != "ok":
            return point
        if point["update"] in self.plain_at:
            return point if "log_z" in point else None
        return {name: value for name, value in point.items() if name not in PLAIN}

    def side_by_side(self, n_replicas):
        """How many replicas to train at once."""
        s, (n_images, n_visible) = self.settings, self.dataset.train.shape
        n_rows = max(min(s["batch_size"], n_images), (s["ais"] or {}).get("n_particles", 0))
        limit = self.engine.capacity(s["n_hidden"], n_visible, n_rows, n_images)
        if limit is not None and limit < 1:
            raise self.no_memory(1)
        return min(limit or n_replicas, n_replicas)

    def no_memory(self, n_replicas):
        """The error that says so."""
        return RunError(
            f"not enough memory for {n_replicas} trials of {self.settings['dataset']} with "
            f"{self.settings['n_hidden']} hidden units side by side: run with fewer trials, or "
            "fewer jobs at once (--cores 1)"
        )

    def provenance(self, sources):
        """Of a run file, with the versions of the code that trained."""
        about = provenance(self.engine)
        about |= {"source": joined(sources or [about["source"]])}  # none without a checkpoint
        if self.dataset.sha256:  # an own file: it may change, or be gone when the run is read
            shape = list(self.dataset.image_shape)
            about |= {"data_sha256": self.dataset.sha256, "image_shape": shape}
        return about


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
