"""The datasets, and what happens when a download goes wrong."""

import errno
import gzip
import hashlib
import os
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import requests
import yaml
from conftest import folder_with
from scipy.io import savemat

from sdcpd import data
from sdcpd.data import DataError, bars_and_stripes, fetch, load, load_labelled, readers
from sdcpd.data import catalogue as module
from sdcpd.files import whole_file

# ---------------------------------------------------------------------- Bars & Stripes


@pytest.mark.parametrize("size", [2, 3])
def test_bars_and_stripes(size):
    """2 · 2^D patterns, each a valid one, none missing, the two uniform ones twice."""
    patterns = bars_and_stripes(size)
    assert patterns.shape == (2 ** (size + 1), size**2) and patterns.dtype == np.uint8
    for image in patterns.reshape(-1, size, size):
        assert (image == image[:, :1]).all() or (image == image[:1]).all()
    distinct, counts = np.unique(patterns, axis=0, return_counts=True)
    assert len(distinct) == 2 ** (size + 1) - 2
    uniform = distinct.min(1) == distinct.max(1)
    assert counts[uniform].tolist() == [2, 2] and (counts[~uniform] == 1).all()


@pytest.mark.parametrize("name", ["bars_and_stripes", "bars_and_stripes_valid"])
def test_bars_and_stripes_need_no_files_and_have_nothing_to_hold_out(name, tmp_path):
    dataset = load(name, tmp_path)
    np.testing.assert_array_equal(dataset.train, bars_and_stripes(3))
    assert dataset.test is dataset.train and dataset.valid is None
    assert dataset.image_shape == (3, 3) and data.files_of(name) == []


# ------------------------------------------------------------------- the real datasets


REAL = {  # sizes, and shares of the pixels that are 1: a wrong file, threshold or polarity
    "mnist": ((60_000, 10_000), (0.13066, 0.13245)),
    "mnist_bernoulli": ((60_000, 10_000), (0.13066, 0.13255)),
    "caltech101_silhouettes": ((4100, 2264, 2307), (0.55105, 0.53596, 0.53902)),
    "kannada_mnist": ((60_000, 10_000), (0.08160, 0.07122)),  # grey ≥ 128
    "kannada_mnist_bernoulli": ((60_000, 10_000), (0.08227, 0.07266)),
}
DIGESTS = {  # of our binarizations, the same on every machine
    "mnist_bernoulli": ["2ffb63c73c882d8e", "549b7c77dca9952a"],
    "kannada_mnist_bernoulli": ["8a836ea1b029d111", "18637cf31da07fec"],
}


@pytest.mark.parametrize("name", REAL)
def test_real_dataset(name, real_dataset):
    dataset = real_dataset(name)
    parts = [part for part in dataset[:3] if part is not None]
    assert dataset.image_shape == (28, 28)
    for images, size, mean in zip(parts, *REAL[name], strict=True):
        assert images.shape == (size, 784) and images.dtype == np.uint8
        assert images.max() == 1 and images.flags.c_contiguous
        assert images.mean() == pytest.approx(mean, abs=5e-5)
    if name in DIGESTS:
        assert [hashlib.sha256(part).hexdigest()[:16] for part in parts] == DIGESTS[name]


def test_mnist(real_dataset):
    """As published; pixels row by row, so that digits stand upright: taller than wide. The same
    in our binarization, which is drawn with the grey value as probability."""
    fixed, drawn = real_dataset("mnist"), real_dataset("mnist_bernoulli")
    means = fixed.train.mean(0)
    assert ((means == 0) | (means == 1)).sum() == 94  # pixels that never change
    image = means.reshape(28, 28)
    assert (image.sum(1) > 1).sum() > (image.sum(0) > 1).sum()
    assert (drawn.test != fixed.test).mean() > 0.01
    np.testing.assert_allclose(drawn.train.mean(0), means, atol=0.015)


def test_caltech101_silhouettes(real_dataset):
    """Background 1 as stored, the images the right way up; inverted and merged in all parts, and
    judged by its own validation images where hyperparameters are chosen."""
    ends = "", "_inverted", "_merged", "_valid"
    stored, inverted, merged, held = (real_dataset(f"caltech101_silhouettes{e}") for e in ends)
    corners = stored.train.reshape(-1, 28, 28)[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.all()
    umbrella = 1 - stored.train[3000].reshape(28, 28)  # open above, a thin stick below
    assert umbrella[12].sum() > 20 and umbrella[16:20].sum(1).max() < 5
    for part, original in zip(inverted[:3], stored[:3], strict=True):
        np.testing.assert_array_equal(part, 1 - original)
    np.testing.assert_array_equal(merged.train, np.concatenate([stored.train, stored.valid]))
    np.testing.assert_array_equal(merged.test, stored.test)
    np.testing.assert_array_equal(held.train, stored.train)
    np.testing.assert_array_equal(held.test, stored.valid)
    assert merged.valid is held.valid is None  # not the same images twice


CLASS_MEANS = {  # number of classes, and how many test images their nearest mean tells
    "mnist": (10, 0.80),
    "kannada_mnist_bernoulli": (10, 0.74),
    "caltech101_silhouettes": (101, 0.5),
}


@pytest.mark.parametrize("name", CLASS_MEANS)
def test_images_and_classes_belong_together(name, real_dataset, monkeypatch):
    """Classes of another order or part: as good as guessing. MNIST's are those of our binarization,
    as the fixed one has an order of its own. Images as loaded before, for time."""
    n_classes, share = CLASS_MEANS[name]
    folder = folder_with(data.labelled_files_of(name))
    if folder is None:
        pytest.skip(f"no classes of {name}")
    monkeypatch.setattr(data, "load", lambda name, folder: real_dataset(name))
    train, train_classes, test, test_classes = load_labelled(name, folder)
    images = real_dataset({"mnist": "mnist_bernoulli"}.get(name, name))
    assert train is images.train and train_classes.shape == (len(train),)
    assert test is images.test and test_classes.shape == (len(test),)
    classes = np.unique(train_classes)
    assert len(classes) == n_classes and (np.unique(test_classes) == classes).all()
    means = np.array([train[train_classes == c].mean(0) for c in classes], np.float32)
    nearer = test.astype(np.float32) @ means.T - (means**2).sum(1) / 2
    assert (classes[nearer.argmax(1)] == test_classes).mean() > share


# -------------------------------------------------------- held out for hyperparameters


@pytest.mark.parametrize(("n_rows", "n_held_out"), [(6, 1), (16, 2), (60_000, 10_000)])
def test_images_are_left_on_both_sides_of_a_split(n_rows, n_held_out):
    rows = np.arange(n_rows)[:, None]
    whole = data.Dataset(rows, None, np.zeros((2, 1)), (1, 1), rows)
    held = data._hold_out(whole)
    assert len(held.test) == n_held_out
    assert len(held.train) == len(held.grey) == n_rows - n_held_out
    np.testing.assert_array_equal(np.concatenate([held.train, held.test]), rows)


def test_test_images_stay_out_of_sight(tmp_path, monkeypatch):
    """Each image has a number of its own, in binary."""
    numbers = np.arange(30)
    images = ((numbers[:, None] >> np.arange(784).clip(max=31)) & 1).astype(np.uint8)
    monkeypatch.setattr(data, "HELD_OUT", 3)  # of 20 images: 6
    monkeypatch.setattr(data, "verified", lambda file, folder: file)
    monkeypatch.setitem(data.READERS, "mnist", lambda *paths: (images[:20], None, images[20:]))
    held = load("mnist_valid", tmp_path)
    weights = 2 ** np.arange(5)
    assert (held.train[:, :5] @ weights).tolist() == list(range(14))
    assert (held.test[:, :5] @ weights).tolist() == list(range(14, 20))
    assert (load("mnist", tmp_path).test[:, :5] @ weights).tolist() == list(range(20, 30))
    assert data.files_of("mnist_valid") == data.files_of("mnist")


# ------------------------------------------------------------ small files for all else


URLS = "https://one.example/file", "https://two.example/file"


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """A function that makes a catalogue of files, name -> content, all of the datasets named."""
    monkeypatch.delenv("SDCPD_DATA_MIRROR", raising=False)
    monkeypatch.setattr(module, "CATALOGUE", tmp_path / "datasets.yaml")

    def make(contents, urls=URLS, datasets=None, labelled=None):
        files = {}
        for name, content in contents.items():
            digest = hashlib.sha256(content).hexdigest()
            files[name] = {"bytes": len(content), "sha256": digest, "urls": list(urls)}
        named = {"mnist": list(files)} if datasets is None else datasets
        entries = {name: {"files": of, "shape": [28, 28]} for name, of in named.items()}
        whole = {"datasets": entries, "labelled": labelled, "files": files}
        module.CATALOGUE.write_text(yaml.safe_dump(whole))

    return make


@pytest.fixture
def no_network(monkeypatch):
    """Every download fails as it does without a network; counts them."""
    tried = []

    def download(self, url, *args, **kwargs):
        tried.append(url)
        raise requests.ConnectionError("unreachable")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", download)
    return tried


CONTENT = b"the right content"
FILE = "folder/file.bin"


def put(root, content, file=FILE):
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_bytes(content)
    return root


@contextmanager
def refused(*words):
    """A DataError of one line with all of these words."""
    with pytest.raises(DataError) as error:
        yield
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


# ----------------------------------------------------------------------------- reading


def write_mat(path, train, test):
    savemat(path, {"x_trn": train, "x_tst": test})
    return path.read_bytes()


def test_load_mnist_takes_columns_as_images(tmp_path, catalogue):
    """Each column is an image, whose pixels are stored column by column."""
    train = np.zeros((784, 3))
    train[28 * 3 + 5, 1] = 1  # image 1: column 3, row 5
    content = write_mat(tmp_path / "file.mat", train, train[:, :1])
    catalogue({FILE: content})
    dataset = load("mnist", put(tmp_path, content))
    assert dataset.train.dtype == np.uint8 and dataset.test.shape == (1, 784)
    assert np.argwhere(dataset.train.reshape(3, 28, 28)).tolist() == [[1, 5, 3]]


def test_load_refuses_grey_values(tmp_path, catalogue):
    """Grey images would be cut to 0 and 1, or trained on as they are, without a word."""
    content = write_mat(tmp_path / "file.mat", np.full((784, 3), 0.5), np.zeros((784, 1)))
    catalogue({FILE: content})
    with refused("mnist: every pixel must be 0 or 1"):
        load("mnist", put(tmp_path, content))


def idx(images, magic=2051):
    header = struct.pack(">4i", magic, *images.shape)
    return gzip.compress(header + images.astype(np.uint8).tobytes())


def test_kannada_threshold_and_order_of_pixels(tmp_path):
    """127 is off and 128 on; an IDX file is read row by row."""
    images = np.array([[[0, 127, 128], [255, 1, 200]], [[128, 0, 0], [0, 0, 127]]])
    (tmp_path / "images.gz").write_bytes(idx(images))
    train, valid, test = readers._read_kannada(tmp_path / "images.gz", tmp_path / "images.gz")
    assert train.tolist() == [[0, 0, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0]]


def test_bernoulli_extremes(tmp_path):
    """Grey 0 is always off, grey 255 always on; train and test have different random numbers."""
    images = np.full((20, 40, 50), 100)
    images[:, :, :10], images[:, :, 10:20] = 0, 255
    (tmp_path / "images.gz").write_bytes(idx(images))
    paths = [tmp_path / "images.gz"] * 2
    train, _, test = readers._read_bernoulli("mnist_bernoulli", *paths)
    pixels = train.reshape(images.shape)
    assert not pixels[:, :, :10].any() and pixels[:, :, 10:20].all()
    assert pixels[:, :, 20:].mean() == pytest.approx(100 / 255, abs=0.013)  # 4 σ
    assert (train != test).any()
    other, _, _ = readers._read_bernoulli("kannada_mnist_bernoulli", *paths)
    assert (train != other).any()  # nor has another dataset the same


def test_mnist_that_is_binarized_anew_has_its_grey_levels_too(tmp_path, catalogue):
    """The images of mnist_bernoulli to evaluate on; grey levels uncut, of those trained on."""
    files = ["a/train.gz", "a/test.gz"]
    grey = np.random.default_rng(1).integers(0, 256, (9, 4, 5))
    contents = dict(zip(files, (idx(grey), idx(grey[:3] // 2)), strict=True))
    catalogue(contents, datasets={"mnist_fresh": files, "mnist_bernoulli": files})
    for file, content in contents.items():
        put(tmp_path, content, file)
    for end, rows in (("", 9), ("_valid", 8)):
        fresh, fixed = (load(f"mnist_{name}{end}", tmp_path) for name in ("fresh", "bernoulli"))
        assert fixed.grey is None and fresh.grey.dtype == np.uint8 and fresh.valid is None
        np.testing.assert_array_equal(fresh.grey, grey.reshape(9, 20)[:rows])
        assert fresh.grey.max() > 200 and set(np.unique(fresh.train)) == {0, 1}
        np.testing.assert_array_equal(fresh.train, fixed.train)
        np.testing.assert_array_equal(fresh.test, fixed.test)
        assert len(fresh.train) == rows


def test_caltech_images_are_transposed_when_read(tmp_path):
    stored = np.ones((2, 784), np.uint8)
    stored[0, 28 * 3 + 5] = 0  # column 3, row 5
    savemat(tmp_path / "file.mat", {f"{p}_data": stored for p in ("train", "val", "test")})
    for part in readers._read_caltech(tmp_path / "file.mat"):
        assert np.argwhere(part.reshape(2, 28, 28) == 0).tolist() == [[0, 5, 3]]


@pytest.mark.parametrize(
    ("found", "kind", "what"),
    [(2049, readers.IMAGES, "images"), (2051, readers.CLASSES, "classes")],
)
def test_labels_are_not_images_nor_images_labels(found, kind, what, tmp_path):
    (tmp_path / "file.gz").write_bytes(idx(np.zeros((1, 2, 3)), magic=found))
    with refused("file.gz", f"not an IDX file of {what}"):
        readers.read_idx(tmp_path / "file.gz", kind)


def idx_of_classes(classes):
    content = struct.pack(">2i", 2049, len(classes)) + np.array(classes, np.uint8).tobytes()
    return gzip.compress(content)


def test_classes_are_read_in_the_order_of_the_images(tmp_path, catalogue):
    """Of training and of test images, from the last two files."""
    grey = np.zeros((3, 2, 2))
    contents = {"k/a.gz": idx(grey), "k/b.gz": idx(grey[:2])}
    contents |= {"k/c.gz": idx_of_classes([7, 0, 9]), "k/d.gz": idx_of_classes([8, 255])}
    files = list(contents)
    catalogue(contents, datasets={"kannada_mnist": files[:2]}, labelled={"kannada_mnist": files})
    for file, content in contents.items():
        put(tmp_path, content, file)
    labelled = load_labelled("kannada_mnist", tmp_path)
    assert labelled.train_classes.tolist() == [7, 0, 9]
    assert labelled.test_classes.tolist() == [8, 255]


def test_load_of_a_missing_or_damaged_file(tmp_path, catalogue):
    """Each says which file, and the command that mends it."""
    catalogue({FILE: CONTENT})
    with refused("file.bin is missing", "`uv run snakemake"):
        load("mnist", tmp_path)
    put(tmp_path, CONTENT[:-1])
    with refused("file.bin is damaged", "`uv run snakemake"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        (load, "mist", ("unknown dataset 'mist'", "bars_and_stripes, mnist", "kannada")),
        (data.files_of, "mist_valid", ("unknown dataset 'mist'",)),
        (load_labelled, "bars_and_stripes", ("has no classes", "mnist, caltech101_silhouettes")),
        (load_labelled, "mnist_valid", ("'mnist_valid' has no classes",)),
        (fetch, "mnist/nothing", ("unknown file 'mnist/nothing'",)),
    ],
)
def test_unknown_names(function, name, words):
    with refused(*words):
        function(name)


# ------------------------------------------------------------------------- downloading


@pytest.mark.parametrize("before", [None, b"damaged", CONTENT])
def test_fetch_from_a_mirror(before, tmp_path, catalogue, no_network, monkeypatch):
    """The folder is tried first, and nothing is downloaded; a good file is left alone."""
    catalogue({FILE: CONTENT})
    target, mirror = tmp_path / "data" / FILE, put(tmp_path / "mirror", CONTENT)
    if before:
        put(tmp_path / "data", before)
        os.utime(target, (1, 1))
    monkeypatch.setenv("SDCPD_DATA_MIRROR", str(mirror))
    assert fetch(FILE, tmp_path / "data") == target
    assert target.read_bytes() == CONTENT and (target.stat().st_mtime == 1) == (before == CONTENT)
    assert no_network == [] and [p.name for p in target.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("source", ["mirror", "network"])
def test_fetch_on_a_full_disk(source, tmp_path, catalogue, monkeypatch):
    """One line that says how much room is needed; no partial file is left."""

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", full)
    monkeypatch.setattr("shutil.copyfile", full)
    catalogue({FILE: CONTENT})
    mirror = put(tmp_path / "mirror", CONTENT) if source == "mirror" else None
    with refused("disk is full", "needs 0.0 MB in"):
        fetch(FILE, tmp_path / "data", mirror)
    assert list((tmp_path / "data/folder").iterdir()) == []


def test_fetch_into_a_folder_that_cannot_be_made(tmp_path, catalogue):
    catalogue({FILE: CONTENT})
    (tmp_path / "data").write_text("a file where the folder should be")
    with refused("cannot write", "file.bin"):
        fetch(FILE, tmp_path / "data")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder served over HTTP on this machine, its address and the paths asked for."""
    asked, folder = [], tmp_path / "served"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def log_message(self, *args):
            asked.append(self.path)

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{http.server_port}", asked
        http.shutdown()


def test_fetch_downloads(tmp_path, catalogue, server):
    """A damaged mirror and two bad addresses are passed over; a damaged target is replaced."""
    folder, address, asked = server
    (folder / "damaged").write_bytes(CONTENT + b".")
    (folder / "good").write_bytes(CONTENT)
    urls = [f"{address}/{name}" for name in ("missing", "damaged", "good", "never")]
    catalogue({FILE: CONTENT}, urls)
    put(tmp_path / "data", b"damaged")
    path = fetch(FILE, tmp_path / "data", put(tmp_path / "mirror", b"damaged"))
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    assert asked and "/good" in asked and "/never" not in asked


def test_fetch_says_what_became_of_each_place(tmp_path, catalogue, server):
    """In one line, and what to do; nothing unverified is left behind."""
    folder, address, _ = server
    (folder / "damaged").write_bytes(CONTENT + b".")
    dead = "https://127.0.0.1:1"
    catalogue({FILE: CONTENT}, [f"{address}/missing", f"{address}/damaged", f"{dead}/file"])
    mirror = put(tmp_path / "mirror", b"damaged")
    place = address.removeprefix("http://")
    answers = f"{place}: HTTP status 404", f"{place}: damaged (wrong checksum)"
    advice = "Connect to the internet", "SDCPD_DATA_MIRROR"
    with refused(f"{mirror / FILE} is damaged", *answers, "127.0.0.1:1: no connection", *advice):
        fetch(FILE, tmp_path / "data", mirror)
    assert list((tmp_path / "data/folder").iterdir()) == []
    with refused("elsewhere/folder/file.bin is not there"):
        fetch(FILE, tmp_path / "data", tmp_path / "elsewhere")


def test_whole_file_leaves_nothing_of_a_killed_one(tmp_path):
    """But the part that a living process is at work on, and what is no part at all."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    kept = [f"a.npz.{os.getppid()}.part", "a.npz.notes.part", f"b.npz.{dead.pid}.part", "a.npz"]
    for name in (*kept, f"a.npz.{dead.pid}.part"):
        (tmp_path / name).write_text("")
    with whole_file(tmp_path / "a.npz") as file:
        file.write("new")
    assert {path.name for path in tmp_path.iterdir()} == {*kept}
    assert (tmp_path / "a.npz").read_text() == "new"
