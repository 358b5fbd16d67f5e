"""Datasets in files of the reader's own: every form that is allowed, and every mistake."""

import io
import os

import numpy as np
import pytest
from conftest import random_bits

from sdcpd import data


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(name, words):
    with pytest.raises(data.DataError) as error:
        data.load(name)
    assert words in str(error.value) and str(error.value).startswith(name), error.value
    assert "\n" not in str(error.value)


def test_forms_of_own_data():
    """The same images in every form that is allowed."""
    images = random_bits(30, 2, 8, seed=2, dtype=np.uint8)
    rows = images.reshape(30, 16)
    forms = [images, images.astype(bool), rows, rows.astype(np.int64), rows.astype(np.float64)]
    for array in [*forms, np.asfortranarray(rows), rows.astype(">f4"), rows.astype(np.float16)]:
        np.save("a.npy", array)
        np.savez("b.npz", anything=array)
        np.savez("c.npz", train=array, labels=np.array(["x"] * 30, dtype=object))
        for name in ("a.npy", "b.npz", "c.npz"):
            found = data.load(name)
            assert found.train.dtype == found.test.dtype == np.uint8 and found.held_out == 3
            np.testing.assert_array_equal(found.train, rows[:27])
            np.testing.assert_array_equal(found.test, rows[27:])
            assert found.image_shape == ((2, 8) if array.ndim == 3 else (4, 4))
            assert found.valid is None and found.grey is None
    np.savez("d.npz", train=images[:20], test=images[20:24], valid=images[24:])
    found = data.load("d.npz")
    parts = found.train, found.test, found.valid
    for part, expected in zip(parts, (rows[:20], rows[20:24], rows[24:]), strict=True):
        np.testing.assert_array_equal(part, expected)
    assert found.held_out == 0 and data.files_of("d.npz") == []


@pytest.mark.parametrize(("n", "held_out"), [(3, 1), (19, 1), (20, 2), (105, 10)])
def test_last_tenth_is_held_out(n, held_out):
    np.save("a.npy", random_bits(n, 7, seed=n))
    found = data.load("a.npy")
    assert (len(found.train), len(found.test), found.held_out) == (n - held_out, held_out, held_out)
    assert found.image_shape == (1, 7)  # 7 is no square


def test_own_files_are_never_unpickled(tmp_path):
    trap = tmp_path / "trap"

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(trap),)

    array = np.array([[Malicious()]], dtype=object)
    np.save("bad.npy", array)
    np.savez("bad.npz", train=array)
    for name in ("bad.npy", "bad.npz"):
        refused(name, "damaged, or not numbers")
        assert not trap.exists()
    np.load("bad.npy", allow_pickle=True)
    assert trap.exists()  # the trap works


def saved(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def array_file(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


BITS = random_bits(20, 9, seed=1)
BAD_FILES = {  # name and content of a file, and what is said of it
    "grey": ("x.npy", array_file(BITS * 0.5), "0 or 1, not 0.5; binarize"),
    "negative": ("x.npy", array_file(-BITS), "0 or 1, not -1"),
    "nearly 1": ("x.npy", array_file(BITS * np.float32(0.9999999)), "0 or 1, not 0.9999999"),
    "NaN": ("x.npy", array_file(np.where(BITS, np.nan, 0)), "0 or 1, not nan"),
    "grey test images": ("x.npz", saved(train=BITS, test=BITS / 3), "(test): every pixel"),
    "no rows": ("x.npy", array_file(BITS[0]), "expected rows of pixels"),
    "four axes": ("x.npy", array_file(BITS.reshape(20, 3, 3, 1)), "expected rows of pixels"),
    "a number": ("x.npy", array_file(np.float64(1)), "expected rows of pixels"),
    "no pixels": ("x.npy", array_file(BITS.reshape(20, 9, 1)[:, :0]), "expected rows of pixels"),
    "empty test": ("x.npz", saved(train=BITS, test=BITS[:0]), "(test): expected rows"),
    "two images": ("x.npy", array_file(BITS[:2]), "at least 2 training images"),
    "one to train": ("x.npz", saved(train=BITS[:1], test=BITS), "at least 2 training images"),
    "complex": ("x.npy", array_file(BITS.astype(complex)), "must be numbers, 0 or 1, and not"),
    "records": ("x.npy", array_file(np.zeros(4, "i4,f4")), "must be numbers"),
    "other names": ("x.npz", saved(X=BITS, y=BITS), "no array train in it, but X, y"),
    "no arrays": ("x.npz", saved(), "no array train in it, but nothing"),
    "other sizes": ("x.npz", saved(train=BITS, test=BITS[:, 1:]), "same shape, not train (9,)"),
    "other shapes": (
        "x.npz",
        saved(train=BITS.reshape(20, 3, 3), test=BITS.reshape(20, 1, 9)),
        "same shape, not train (3, 3), test (1, 9)",
    ),
    "text": ("x.npy", b"0,1,1\n1,0,0\n", "damaged, or not numbers"),
    "cut": ("x.npy", array_file(BITS)[:-9], "damaged, or not numbers"),
    "huge": ("x.npy", array_file(BITS).replace(b"(20, 9), ", b"(9**9**9)"), "damaged, or not"),
    "wrong npz": (
        "x.npz",
        saved(train=BITS).replace(BITS.tobytes(), BITS[::-1].tobytes()),
        "damaged, or not numbers",
    ),
    "no array in it": ("x.npz", saved(train=BITS).replace(b"\x93NUMPY", b"\x93numpy"), "damaged"),
    "empty npz": ("x.npz", b"", "damaged, or not numbers"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file(case, tmp_path):
    name, content, words = BAD_FILES[case]
    (tmp_path / name).write_bytes(content)
    refused(name, words)
