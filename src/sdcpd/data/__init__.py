"""The four datasets as arrays of {0, 1}, and their downloads.

    bars_and_stripes         generated; 16 patterns for 3×3
    mnist                    Salakhutdinov & Murray's fixed binarization, 60,000 / 10,000 × 784
    caltech101_silhouettes   split 1 of Marlin's 28×28 silhouettes, 4,100 / 2,264 / 2,307 × 784
    kannada_mnist_bernoulli  our seeded Bernoulli binarization, 60,000 / 10,000 × 784

and, where the paper leaves a choice open, the same with the other choice:

    mnist_bernoulli          our seeded Bernoulli binarization of the grey images
    mnist_fresh              the same for evaluation; for training drawn anew at every visit
    caltech101_silhouettes_inverted    object 1, background 0
    caltech101_silhouettes_merged      trained on the validation images, too, 6,364 / 2,307
    kannada_mnist            grey ≥ 128

``mnist_valid`` etc., for the choice of hyperparameters: the test images stay out of sight, and in
their place are the validation split of CalTech, or the last sixth of the training images of the
others, which are then not trained on. Bars & Stripes has nothing to hold out: all patterns are
trained on.

The path of a .npy or .npz file is the name of a dataset, too: see ``own.read_own``.

The files are downloaded and never redistributed. Titles, sizes, licences, addresses and checksums:
``workflow/config/datasets.yaml``.

catalogue  what is known of each dataset
download   the files, fetched and verified
own        the user's own .npy and .npz files
readers    the formats of the public files
"""

import numpy as np

from .. import ROOT
from .catalogue import (
    VALID,
    DataError,
    Dataset,
    Labelled,
    check_binary,
    entry_of,
    files_of,
    is_own,
    labelled_files_of,
    title_of,
)
from .download import fetch, verified
from .own import read_own
from .readers import CLASSES, IMAGES, READERS, bars_and_stripes, read_idx

HELD_OUT = 6  # the last 1/6 of the training images stands in for the test images


def load(name, folder=ROOT / "data"):
    """The dataset ``name``, from files that ``fetch`` has put into ``folder``.

    Parameters
    ----------
    name : str
        One of the names at the top of this module, or one with ``_valid`` at its end; or the path
        of a .npy or .npz file, see ``own.read_own``.

    Returns
    -------
    Dataset
        Pixels of an image row by row. Bars & Stripes: test is train.

    Raises
    ------
    DataError
        If the name is unknown, or a file is missing, damaged or not binary.
    """
    if is_own(name):
        return read_own(name)
    if name.endswith(VALID):
        return _hold_out(load(name.removesuffix(VALID), folder))
    entry = entry_of(name)
    paths = [verified(file, folder) for file in entry["files"]]
    parts = READERS[name](*paths)
    for part in parts:
        if part is not None:
            check_binary(part, name)
    train, valid, test = (None if p is None else p.astype(np.uint8, copy=False) for p in parts)
    grey = read_idx(paths[0], IMAGES) if name == "mnist_fresh" else None
    return Dataset(train, valid, test, tuple(entry["shape"]), grey)


def load_labelled(name, folder=ROOT / "data"):
    """The images of a dataset with their classes.

    MNIST's fixed binarization comes without classes and in an order of its own: our binarization
    of the same images stands in for it.

    Returns
    -------
    Labelled

    Raises
    ------
    DataError
        If there are no classes, or as ``load``.
    """
    files = labelled_files_of(name)
    dataset = load("mnist_bernoulli" if name.startswith("mnist") else name, folder)
    paths = [verified(file, folder) for file in files]
    if paths[-1].suffix == ".mat":
        from scipy.io import loadmat

        content = loadmat(paths[-1])
        classes = [content[f"{part}_labels"].ravel() for part in ("train", "test")]
    else:
        classes = [read_idx(path, CLASSES) for path in paths[-2:]]
    return Labelled(dataset.train, classes[0], dataset.test, classes[1])


def _hold_out(dataset):
    """The dataset with other images in the place of the test images."""
    if dataset.test is dataset.train:
        return dataset
    if dataset.valid is not None:
        return dataset._replace(valid=None, test=dataset.valid)
    kept = len(dataset.train) - len(dataset.train) // HELD_OUT
    grey = None if dataset.grey is None else dataset.grey[:kept]
    return dataset._replace(train=dataset.train[:kept], test=dataset.train[kept:], grey=grey)
