"""Pictures of images: Figure 5 of the paper, hidden modes, filters and reconstructions."""

import numpy as np

from ..algorithms import LABELS
from ..data import title_of
from ..likelihood import refuted
from ..runs.archive import best_trial
from .captions import describe_runs
from .style import STYLES, headline, mpl, plt


def sample_grids(runs, images, image_shape, paper_budget, n_steps):
    """Figure 5: a grid of generated images for each algorithm.

    Parameters
    ----------
    images : list of ndarray or None, (n_images, m)
        For each run; None where no trial is left.
    """
    figure, axes = plt.subplots(1, len(runs), figsize=(2.1 * len(runs), 3.4))
    for axis, run, states in zip(np.atleast_1d(axes), runs, images, strict=True):
        axis.set_title(LABELS[run.settings["algorithm"]])
        axis.set_axis_off()
        if states is None:
            text = "diverged" if best_trial(run.curve) is None else "model not kept"
            axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)
            continue
        axis.imshow(tile(states, image_shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    n_images = max((len(states) for states in images if states is not None), default=0)
    settings = runs[0].settings
    title = f"{title_of(settings['dataset'])}: {n_images} images after {n_steps:,} Gibbs steps"
    lines = describe_runs(runs, paper_budget)
    if n_steps < paper_budget["samples"]["n_steps"]:
        lines.append(f"Gibbs steps reduced (paper: {paper_budget['samples']['n_steps']:,}).")
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
        own, (color, marker) = measured[measured.algorithm == name], STYLES[name]
        highest = (own.trusted_test + own.trusted_log_z - own.bound).min()
        axis.plot(own.test, [row] * len(own), marker, mfc="white", color=color, ms=6)
        axis.plot(own.trusted_test, [row] * len(own), "x", color=color, ms=6)
        axis.plot(highest, row, "|", color="red", ms=16, mew=1.5)
        if refuted(own.log_z, own.bound).any():
            axis.plot([highest, own.test.max()], [row, row], color="red", lw=1, ls=":")
        mode, *ends = images[name]
        strip(pictures, [mode], image_shape, 0, row)
        end = strip(pictures, ends, image_shape, 1.15, row)
        shares = (100 * own[f].sum() / own.chains.sum() for f in ("from_images", "from_noise"))
        text = "ending in the mode:\n{:.0f} % from images\n{:.0f} % from noise".format(*shares)
        pictures.text(end + 0.15, row, text, va="center", fontsize=7.5)
    text, at = "real test images", end + 0.15
    if real is None:
        text, at = "real test images: the data are not at hand", 1.15
    else:
        strip(pictures, real, image_shape, 1.15, n)
    pictures.text(at, n, text, va="center", fontsize=7.5)
    pictures.set(xlim=(0, end + 2.6), aspect="equal", anchor="W", frame_on=False, xticks=[])
    pictures.tick_params(left=False, labelleft=False)
    pictures.grid(False)
    axis.set(yticks=range(n), yticklabels=[LABELS[name] for name in names], ylim=(n + 0.5, -0.5))
    axis.set_xlabel("test: average log-likelihood (nats)")
    line = mpl.lines.Line2D
    handles = [
        line([], [], color="0.3", marker="o", mfc="white", lw=0),
        line([], [], color="0.3", marker="x", lw=0),
        line([], [], color="red", marker="|", ms=12, mew=1.5, lw=0),
    ]
    labels = ["plain AIS", "trusted estimate", "at most, by the bound on log Z"]
    figure.legend(handles, labels, loc="lower left", ncols=3, fontsize=8)
    headline(figure, title, lines)
    return figure


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
    border = 1
    picture = np.full((side * (rows + border) + border, side * (columns + border) + border), gap)
    for index, image in enumerate(images):
        top = border + (index // side) * (rows + border)
        left = border + (index % side) * (columns + border)
        picture[top : top + rows, left : left + columns] = image.reshape(image_shape)
    return picture


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
