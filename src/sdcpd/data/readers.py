"""How the files of each dataset are read: ``READERS``."""

import gzip
import struct
from functools import partial

import numpy as np

from ..philox import key, random_words
from .catalogue import DataError

GREY_THRESHOLD = 128  # a Kannada-MNIST pixel this bright or brighter is on
BERNOULLI_SEED = 2008  # of our binarizations


def bars_and_stripes(size=3):
    """All patterns of the paper's two-step procedure, once for each way to draw them.

    Each row is all 0 or all 1; then the image is rotated by 90° or not. So there are
    2 · 2^size patterns, in which the two uniform ones occur twice.

    Returns
    -------
    ndarray of uint8, shape (2^(size+1), size²)
    """
    bits = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    bars = np.repeat(bits, size, axis=1)
    stripes = bars.reshape(-1, size, size).transpose(0, 2, 1).reshape(bars.shape)
    return np.concatenate([bars, stripes]).astype(np.uint8)


def _read_bars_and_stripes():
    patterns = bars_and_stripes(3)
    return patterns, None, patterns


def _read_salakhutdinov_murray(path):
    from scipy.io import loadmat

    content = loadmat(path)  # images are columns
    return _row_by_row(content["x_trn"].T), None, _row_by_row(content["x_tst"].T)


def _read_bernoulli(name, train_path, test_path):
    def binarize(part, path):
        grey = read_idx(path, IMAGES)
        stream = key(name, part, BERNOULLI_SEED)
        uniform = random_words(stream, grey.size).reshape(grey.shape) >> np.uint64(11)
        return (uniform * 2.0**-53 < grey / 255).astype(np.uint8)

    return binarize("train", train_path), None, binarize("test", test_path)


def _read_caltech(path):
    from scipy.io import loadmat

    content = loadmat(path)  # as stored, the background is 1 and the object 0
    return tuple(_row_by_row(content[f"{part}_data"]) for part in ("train", "val", "test"))


def _read_inverted_caltech(path):
    return tuple(1 - images for images in _read_caltech(path))


def _read_merged_caltech(path):
    train, valid, test = _read_caltech(path)
    return np.concatenate([train, valid]), None, test


def _read_kannada(train_path, test_path):
    def binarize(path):
        return (read_idx(path, IMAGES) >= GREY_THRESHOLD).astype(np.uint8)

    return binarize(train_path), None, binarize(test_path)


IMAGES, CLASSES = 2051, 2049  # how an IDX file of them begins


def read_idx(path, kind):
    """Rows of pixels of a gzipped IDX file of images, or one number a row."""
    with gzip.open(path) as file:
        found, n = struct.unpack(">2i", file.read(8))
        if found != kind:
            what = {IMAGES: "images", CLASSES: "classes"}[kind]
            raise DataError(f"{path}: not an IDX file of {what}; delete it and download it again")
        if kind == CLASSES:
            return np.frombuffer(file.read(), np.uint8).reshape(n)
        rows, columns = struct.unpack(">2i", file.read(8))
        return np.frombuffer(file.read(), np.uint8).reshape(n, rows * columns)


def _row_by_row(images):
    """Rows of 28×28 pixels, which MATLAB stores column by column, with the pixels row by row."""
    return images.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)


# name of a dataset -> function (paths of its files) -> train, validation (or None), test images
READERS = {
    "bars_and_stripes": _read_bars_and_stripes,
    "mnist": _read_salakhutdinov_murray,
    "mnist_bernoulli": partial(_read_bernoulli, "mnist_bernoulli"),
    "mnist_fresh": partial(_read_bernoulli, "mnist_bernoulli"),
    "caltech101_silhouettes": _read_caltech,
    "caltech101_silhouettes_inverted": _read_inverted_caltech,
    "caltech101_silhouettes_merged": _read_merged_caltech,
    "kannada_mnist": _read_kannada,
    "kannada_mnist_bernoulli": partial(_read_bernoulli, "kannada_mnist_bernoulli"),
}
