"""Pictures of images: Figure 5 of the paper, hidden modes, filters and reconstructions."""

import numpy as np

from ..algorithms import LABELS
from ..data import title_of
from ..runs.archive import best_trial
from ..trusted import refuted
from .captions import describe_runs, label_of
from .style import STYLES, bottom_legend, headline, plt


def sample_grids(runs, images, image_shape, paper_budget, n_steps):
    """Figure 5: a grid of generated images for each algorithm.

    Parameters
    ----------
    images : list of ndarray or None, (n_images, m)
        For each run; None where no trial is left.
    """
    figure, axes = plt.subplots(1, len(runs), figsize=(2.1 * len(runs), 3.4))
    for axis, run, states in zip(np.atleast_1d(axes), runs, images, strict=True):
        axis.set_title(label_of(run))
        axis.set_axis_off()
        if states is None:
            text = "diverged" if best_trial(run.curve) is None else "model not kept"
            axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)
            continue
        axis.imshow(tile(states, image_shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    n_images = max((len(states) for states in images if states is not None), default=0)
    dataset, paper_steps = runs[0].settings["dataset"], paper_budget["samples"]["n_steps"]
    lines = describe_runs(runs, paper_budget)
    if n_steps < paper_steps:
        lines.append(f"Gibbs steps reduced (paper: {paper_steps:,}).")
    title = f"{title_of(dataset)}: {n_images} images after {n_steps:,} Gibbs steps"
    headline(figure, title, lines)
    return figure


def hidden_modes(measured, images, real, image_shape, title, lines):
    """What plain AIS does not see: likelihoods, the modes, and where chains end.

    Parameters
    ----------
    measured : DataFrame
        As ``modes.measure`` makes it.
    images : dict
        algorithm -> ndarray (1 + n, m): the mode, and the ends of n chains that began in noise.
    real : ndarray of uint8, (n, m), or None
        Test images; None where the data are not at hand.
    """
    names = list(dict.fromkeys(measured.algorithm))
    n = len(names)
    figure, (axis, pictures) = plt.subplots(
        1, 2, figsize=(13, 0.72 * n + 2.2), width_ratios=(1, 2.1), sharey=True
    )
    pictures.text(0, -0.6, "mode", fontsize=8)
    pictures.text(1.15, -0.6, "last states of chains that began in noise", fontsize=8)
    for row, name in enumerate(names):
        of_algorithm = measured[measured.algorithm == name]
        _draw_likelihoods(axis, of_algorithm, row, *STYLES[name])
        strip(pictures, images[name][:1], image_shape, 0, row)
        end = strip(pictures, images[name][1:], image_shape, 1.15, row)
        counts = of_algorithm[["from_images", "from_noise", "chains"]].sum()
        text = (
            f"ending in the mode:\n{100 * counts.from_images / counts.chains:.0f} % from images\n"
            f"{100 * counts.from_noise / counts.chains:.0f} % from noise"
        )
        pictures.text(end + 0.15, row, text, va="center", fontsize=7.5)
    text, at = "real test images: the data are not at hand", 1.15
    if real is not None:
        text, at = "real test images", strip(pictures, real, image_shape, 1.15, n) + 0.15
    pictures.text(at, n, text, va="center", fontsize=7.5)
    pictures.set(xlim=(0, end + 2.6), aspect="equal", anchor="W", frame_on=False, xticks=[])
    pictures.tick_params(left=False, labelleft=False)
    pictures.grid(False)
    axis.set(yticks=range(n), yticklabels=[LABELS[name] for name in names], ylim=(n + 0.5, -0.5))
    axis.set_xlabel("test: average log-likelihood (nats)")
    bar = {"color": "red", "marker": "|", "ms": 12, "mew": 1.5, "lw": 0}
    styles = {
        "plain AIS": {"color": "0.3", "marker": "o", "mfc": "white", "lw": 0},
        "trusted estimate": {"color": "0.3", "marker": "x", "lw": 0},
        "at most, by the bound on log Z": bar,
    }
    bottom_legend(figure, styles, loc="lower left")
    headline(figure, title, lines)
    return figure


def _draw_likelihoods(axis, measured, row, color, marker):
    """Of one algorithm: plain AIS, the trusted estimate, and what the bound allows."""
    at_most = (measured.trusted_test + measured.trusted_log_z - measured.bound).min()
    axis.plot(measured.test, [row] * len(measured), marker, mfc="white", color=color, ms=6)
    axis.plot(measured.trusted_test, [row] * len(measured), "x", color=color, ms=6)
    axis.plot(at_most, row, "|", color="red", ms=16, mew=1.5)
    if refuted(measured.log_z, measured.bound).any():
        axis.plot([at_most, measured.test.max()], [row, row], color="red", lw=1, ls=":")


def filters(snapshots, image_shape):
    """The weights of the first hidden units while a model learns, as images of the visible layer.

    Parameters
    ----------
    snapshots : dict
        As ``snapshots.load`` gives it.
    """
    shown = _some(len(snapshots["epoch"]))
    figure, axes = plt.subplots(1, len(shown), figsize=(2.3 * len(shown) + 0.8, 2.9), squeeze=False)
    weights = snapshots["filters"].astype(float)
    scale = np.abs(weights[shown]).max() or 1
    for axis, point in zip(axes[0], shown, strict=True):
        picture = tile(weights[point], image_shape, gap=np.nan)
        drawn = axis.imshow(picture, cmap="RdBu_r", vmin=-scale, vmax=scale)
        axis.set_title(f"epoch {snapshots['epoch'][point]:.4g}")
        axis.set_axis_off()
    figure.colorbar(drawn, ax=list(axes[0]), label="weight", shrink=0.7)
    return figure


def reconstructions(snapshots, image_shape):
    """Test images, and below them what a model makes of them while it learns: p(v | p(h | v))."""
    shown = _some(len(snapshots["epoch"]))
    rows = [snapshots["images"], *snapshots["reconstructions"][shown].astype(float)]
    names = ["test image", *(f"epoch {snapshots['epoch'][point]:.4g}" for point in shown)]
    n = len(snapshots["images"])
    figure, axes = plt.subplots(len(rows), 1, figsize=(0.75 * n + 1.2, 0.85 * len(rows)))
    for axis, images, name in zip(axes, rows, names, strict=True):
        strip(axis, images, image_shape, 0, 0)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
    figure.tight_layout()
    return figure


def tile(images, image_shape, gap=0.5):
    """Images (N, m) as one square picture with grey gaps between them."""
    rows, columns = image_shape
    side = int(np.ceil(np.sqrt(len(images))))
    cells = np.full(
        (side**2, rows + 1, columns + 1), gap
    )  # each with the gap above and to the left
    cells[: len(images), 1:, 1:] = np.reshape(images, (-1, rows, columns))
    cells = cells.reshape(side, side, rows + 1, columns + 1).swapaxes(1, 2)
    picture = cells.reshape(side * (rows + 1), side * (columns + 1))
    return np.pad(picture, ((0, 1), (0, 1)), constant_values=gap)


def strip(axis, images, image_shape, left, row):
    """Images (N, m) side by side from ``left``, around the height ``row``; where they end."""
    border = {"pad_width": 1, "constant_values": 0.5}
    picture = np.hstack([np.pad(v.reshape(image_shape).astype(float), **border) for v in images])
    right = left + 0.9 * picture.shape[1] / picture.shape[0]
    extent = (left, right, row + 0.45, row - 0.45)
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest", extent=extent)
    return right


def _some(n, at_most=6):
    """Numbers of at most so many of ``n`` points: the first ones close, the last one always."""
    return np.unique(np.geomspace(1, n, min(n, at_most)).round().astype(int)) - 1
