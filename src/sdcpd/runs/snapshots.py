"""What a model looks like while it learns: filters and reconstructions at every evaluation.

Of the first trial of a run: the weights of its first hidden units, and a few test images next to
what the model makes of them. For the eye only; nothing else is computed from it. The file lies
beside the run file and is never archived, as it holds images of the data.
"""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from .. import rbm
from ..device import to_host
from ..files import whole_file
from ..rbm import Parameters

NAME = "snapshots.npz"
N_FILTERS, N_IMAGES = 25, 10
_ROW = "update", "epoch", "filters", "reconstructions"


class Snapshots:
    """Filters and reconstructions of one model, kept as they come: an interrupted run goes on.

    Parameters
    ----------
    folder : path
    fingerprint : str
        Of the settings; snapshots of other ones, in the same place, are not kept.
    images : ndarray of uint8, shape (N, m)
        Test images, of which the first are reconstructed.
    """

    def __init__(self, folder, fingerprint, images):
        self.path, self.fingerprint = Path(folder) / NAME, fingerprint
        self.images = np.asarray(images[:N_IMAGES])
        kept = load(folder)
        same = kept is not None and str(kept["fingerprint"]) == fingerprint
        self.rows = list(zip(*(kept[name] for name in _ROW), strict=True)) if same else []

    def take(self, theta, update, epoch):
        """Add those of a model, Parameters of one replica, in the place of what is as late.

        A reconstruction is p(v | h) with h = p(h | v): no random number is drawn.
        """
        theta = Parameters(*map(to_host, (theta.W, theta.b, theta.c)))
        h = rbm.hidden_probability(theta, self.images[None].astype(np.float32))
        made = rbm.visible_probability(theta, h)[0]
        halves = theta.W[0, :N_FILTERS].astype(np.float16), made.astype(np.float16)
        self.rows = [row for row in self.rows if row[0] < update] + [(update, epoch, *halves)]
        arrays = dict(zip(_ROW, map(np.array, zip(*self.rows, strict=True)), strict=True))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path, "wb") as file:
            np.savez_compressed(file, fingerprint=self.fingerprint, images=self.images, **arrays)


def load(folder):
    """What was kept beside a run file: update and epoch (P,), filters (P, N, m), reconstructions
    (P, B, m) and the images (B, m) themselves; None if there is nothing that can be read."""
    try:
        with np.load(Path(folder) / NAME, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, NotImplementedError, BadZipFile, zlib.error):
        return None
