"""What generated images are like: how sharp, how diverse, how far from the training images.

The paper judges by eye (section 4.3.2, Figure 5). These numbers stand in for the eye:

    sharpness   mean |p − ½| of the visible units' probabilities p(v | h); ½: all pixels are certain
    entropy     of the classes of the images (nats), each that of its nearest training image
    largest     share of the largest class: of a collapsed model nearly all
    distance    mean number of pixels by which an image differs from its nearest training image
"""

import numpy as np
from scipy.special import entr  # scipy.stats takes most of a second to import

from .. import ROOT, data, engines, philox, rbm, sampling
from ..device import to_host
from ..philox import Stream
from ..progress import Progress
from .measurements import Measurements, models, side_by_side, stack

COLUMNS = ["algorithm", "trial", "n_images", "n_steps"]
COLUMNS += ["sharpness", "entropy", "largest", "distance"]
TESTED = 1000  # test images by which the classifier is judged
_AT_ONCE = 200  # images that are compared with all training images


def measure(
    finished, folder, seed, n_images, n_steps, trials, backend_name="auto", data_folder=None
):
    """Sharpness, diversity and distance of images that final models generate.

    Parameters
    ----------
    finished : list of runs.Run
        Of one dataset with classes.
    folder : path
        Where ``measurements.Measurements`` keeps each as soon as it is made; ``about.json`` has the
        same of as many ``real`` test images, and the classifier's ``accuracy`` on test images.
    n_images, n_steps : int
        As in ``sampling.generate``, of each model.
    trials : int
        Of each run the first so many that have a model.

    Returns
    -------
    DataFrame
        algorithm, trial, n_images, n_steps, sharpness, entropy, largest, distance.
    """
    engine = engines.select(backend_name)
    size = {"n_images": n_images, "n_steps": n_steps}
    kept = Measurements(folder, COLUMNS, finished, engine, seed=seed, **size)

    def what(run, row):
        return {"algorithm": run.settings["algorithm"], "trial": run.trials[row]} | size

    todo = [model for model in models(finished, trials) if not kept.has(**what(*model))]
    if not todo and "real" in kept.about:
        return kept.table()
    dataset, xp = finished[0].settings["dataset"], engine.xp
    classify = Classifier(dataset, data_folder or ROOT / "data", xp)
    kept.about["real"] = classify(_spread(classify.dataset.test, n_images))
    kept.about["accuracy"] = classify.accuracy()
    progress, done = Progress(f"samples {dataset}", len(todo) * n_steps), 0
    for part in side_by_side(todo, engine, n_images, on_cpu=max(1, len(todo))):
        theta = stack(part, xp)
        fields = [(dataset, *what(*model).values()) for model in part]
        of_images, of_sharpness = (
            [philox.key(seed, use, *of_model) for of_model in fields]
            for use in ("images", "sharpness")
        )

        def report(step, done=done, part=part):
            progress.update(done * n_steps + step * len(part))

        images = sampling.generate(theta, of_images, n_images, n_steps, report, engine)
        sharp = sharpness(theta, xp.asarray(images), Stream(of_sharpness, xp)).tolist()
        found = zip(part, sharp, images, strict=True)
        kept.add(*(what(*model) | {"sharpness": s} | classify(shown) for model, s, shown in found))
        done += len(part)
    progress.close()
    kept.write()
    return kept.table()


def sharpness(theta, images, stream):
    """Mean |p − ½| of p(v | h) over images (R, B, m) and pixels, with h drawn from p(h | v).

    Returns
    -------
    ndarray of float64, shape (R,)
    """
    h = rbm.sample(rbm.hidden_probability(theta, images.astype("float32")), stream)
    p = rbm.visible_probability(theta, h)
    return to_host(abs(p - 0.5).mean((1, 2), dtype="float64"))


class Nearest:
    """The nearest of ``images`` (N, m), in number of pixels that differ."""

    def __init__(self, images, xp=np):
        self.images, self.xp = xp.asarray(images, xp.float32), xp
        self.on = self.images.sum(1)

    def __call__(self, images):
        """Of each of ``images`` (B, m): the number of its nearest, the first of several, and how
        many pixels differ."""
        found = []
        for start in range(0, len(images), _AT_ONCE):
            v = self.xp.asarray(images[start : start + _AT_ONCE], self.xp.float32)
            # |v − x|² = |v|² + |x|² − 2 v·x, of integers that float32 holds exactly
            distances = v.sum(1)[:, None] + self.on - 2 * (v @ self.images.T)
            found.append((to_host(distances.argmin(1)), to_host(distances.min(1))))
        return tuple(map(np.concatenate, zip(*found, strict=True)))


class Classifier:
    """The classes of images, and how far these are from the images of ``dataset``."""

    def __init__(self, name, data_folder, xp):
        self.dataset = data.load(name, data_folder)
        self.labelled = data.load_labelled(name, data_folder)
        self.nearest = self.trained_on = Nearest(self.labelled.train, xp)
        # MNIST's labelled images are not those that were trained on
        if not np.array_equal(self.dataset.train, self.labelled.train):
            self.trained_on = Nearest(self.dataset.train, xp)

    def __call__(self, images):
        """entropy, largest and distance of these images."""
        nearest, distance = self.nearest(images)
        if self.trained_on is not self.nearest:
            _, distance = self.trained_on(images)
        counts = np.bincount(self.labelled.train_classes[nearest])
        shown = {
            "entropy": float(entr(counts / counts.sum()).sum()),
            "largest": float(counts.max() / counts.sum()),
        }
        return shown | {"distance": float(distance.mean())}

    def accuracy(self):
        """Share of test images of which it says the right class."""
        images, classes = (_spread(a, TESTED) for a in self.labelled[-2:])
        nearest, _ = self.nearest(images)
        return float((self.labelled.train_classes[nearest] == classes).mean())


def _spread(rows, n):
    """``n`` rows, evenly spread over all; all where there are fewer."""
    return rows[np.linspace(0, len(rows) - 1, min(n, len(rows))).round().astype(int)]
