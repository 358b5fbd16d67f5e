"""How fast training and evaluation are on this machine's CPU, as a Markdown table.

    uv run python benchmarks/cpu.py             2 minutes on two idle cores, 5 on busy ones
    uv run python benchmarks/cpu.py --quick     15 seconds; noisier, without the last row
    uv run python benchmarks/cpu.py --record    also writes benchmarks/records/cpu-<date>.{json,md}

Tasks take turns, repetition after repetition, so that a machine that gets slower does so for
all: a value is the median over repetitions, a share or ratio that of those within a repetition.
Needs no data: rows are synthetic, 13 % of the pixels on. Nothing fails for being slow.

Products: an update's matrix products alone, into memory allocated beforehand.
Straightforward: CD-24 with the same products as one would first write it, below.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from multiprocessing import get_context

import numpy as np
from threadpoolctl import threadpool_limits

from sdcpd import ROOT
from sdcpd.algorithms import STEPS, Hyperparameters
from sdcpd.backend import Stream, describe, key
from sdcpd.data import bars_and_stripes
from sdcpd.likelihood import annealed_log_z
from sdcpd.rbm import hidden_probability, initialize
from sdcpd.training import train

M, N, BATCH, ON = 784, 500, 200, 0.13
UPDATES = {"CD-24": ("cd", 24), "S-DCP(6,4)": ("sdcp", 4), "S-DCP-D(6,4)": ("sdcp_d", 4)}
PRODUCTS = {"51 products": (25, 24, 2), "61 products": (30, 24, 7)}  # v Wᵀ, h W, pᵀ v
PLAIN = "straightforward CD-24"


def model_and_rows(rows):
    theta = initialize(np.full(M, ON), N, [key("model")])
    v = Stream([key("rows")], np).uniform(rows, M) < ON
    return theta._replace(W=5 * theta.W), v.astype(np.float32)  # weights N(0, .05²)


def hyperparameters(n_gibbs_steps, trials=1, n_visible=M):
    one, mean = np.ones(trials, np.float32), np.full(n_visible, ON, np.float32)
    return Hyperparameters(0.01 * one, 0.1 * one, 0 * one, n_gibbs_steps, 6, 0.01, mean)


@cache
def update(label):
    """One update as in training, as a function without arguments."""
    name, n_gibbs_steps = UPDATES[label]
    theta, v = model_and_rows(BATCH)
    hyper, stream = hyperparameters(n_gibbs_steps), Stream([key(label)], np)
    _, memory = STEPS[name](theta, {}, v, hyper, stream)  # not empty, as after the first update
    return partial(STEPS[name], theta, memory, v, hyper, stream)


def products(rows, n_hidden, n_visible, n_statistics):
    """So many matrix products of each kind, in the shapes and memory layouts of an update."""
    theta, v = model_and_rows(rows)
    p = hidden_probability(theta, v)
    h, Wt, pt = np.round(p), theta.W.transpose(0, 2, 1), p.transpose(0, 2, 1)
    out_h, out_v, out_W = np.empty_like(h), np.empty_like(v), np.empty_like(theta.W)

    def run():
        for i in range(n_hidden):
            np.matmul(v, Wt, out=out_h)
            if i < n_visible:
                np.matmul(h, theta.W, out=out_v)
        for _ in range(n_statistics):
            np.matmul(pt, v, out=out_W)

    return run


def straightforward_cd(W, b, c, v, rate, rng, steps=24):
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def sample(p):
        return (rng.random(p.shape) < p).astype(np.float32)

    p_data = p = sigmoid(v @ W.T + c)
    for _ in range(steps):
        v_model = sample(sigmoid(sample(p) @ W + b))
        p = sigmoid(v_model @ W.T + c)
    W = W + rate * (p_data.T @ v - p.T @ v_model) / len(v)
    b = b + rate * (v - v_model).mean(0)
    return W, b, c + rate * (p_data - p).mean(0)


def train_bars(n_updates):
    """CD-4 of 25 models with 4 hidden units side by side, not evaluated."""
    images = bars_and_stripes(3)
    keys = [key("bars", trial) for trial in range(25)]
    theta, hyper = initialize(images.mean(0), 4, keys), hyperparameters(4, 25, 9)
    train("cd", theta, hyper, images, 16, [n_updates], lambda *_: [{"train": 0}] * 25, keys, keys)


def seconds(function, threads):
    with threadpool_limits(threads, "blas"):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start


def ten_updates():
    for _ in range(10):
        update("CD-24")()


def measure(quick, all_threads):
    """Seconds of every repetition, the first left out: (what, threads) -> list."""
    temperatures, bars_updates, repetitions = (50, 500, 4) if quick else (200, 5000, 8)
    scale = dict.fromkeys(("AIS", "AIS products"), 1000 / temperatures)
    scale["bars"] = 5000 / bars_updates
    theta, v = model_and_rows(BATCH)
    plain = (*(array[0] for array in (*theta, v)), np.float32(0.01), np.random.default_rng(1))
    each = {what: update(what) for what in UPDATES} | {PLAIN: partial(straightforward_cd, *plain)}
    each |= {what: products(BATCH, *counts) for what, counts in PRODUCTS.items()}
    tasks = {(what, t): each[what] for t in sorted({1, all_threads}) for what in each}
    tasks["bars", 1] = partial(train_bars, bars_updates)
    tasks["AIS", 1] = partial(annealed_log_z, theta, [ON] * M, [key("AIS")], 100, temperatures)
    tasks["AIS products", 1] = products(100, temperatures, temperatures, 0)
    times = {task: [] for task in tasks}
    for _ in range(repetitions):
        for (what, t), function in tasks.items():
            times[what, t].append(scale.get(what, 1) * seconds(function, t))
    if not quick and all_threads > 1:
        times |= {("2 × 1 thread", 2): [], ("1 × 2 threads", 2): []}
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            for _ in range(6):
                both = seconds(lambda: list(pool.map(seconds, [ten_updates] * 2, [1, 1])), 2)
                times["2 × 1 thread", 2].append(both / 2)
                times["1 × 2 threads", 2].append(seconds(ten_updates, 2))
    return {task: values[1:] for task, values in times.items()}


def table(times, quick):
    """Rows (what, value, unit)."""

    def median(a, b=None, factor=1):
        return factor * float(np.median(times[a] if b is None else np.divide(times[a], times[b])))

    rows = []
    for t in sorted({threads for what, threads in times if what == "CD-24"}):
        on = f", {t} thread" + "s" * (t > 1)
        for what in (*UPDATES, PLAIN, *PRODUCTS):
            kind = "alone" if what in PRODUCTS else "update"
            rows.append((f"{what} {kind}{on}", median((what, t), factor=1000), "ms"))
        for what, of in zip(UPDATES, ("51 products", "61 products", "61 products"), strict=True):
            rows.append((f"products in {what}{on}", median((of, t), (what, t), 100), "%"))
        rows.append((f"{PLAIN} / ours{on}", median((PLAIN, t), ("CD-24", t)), "×"))
    scaled = ", scaled from 500" if quick else ""
    what = "Bars & Stripes, 25 trials × 5,000 updates of CD-4, 4 hidden units, 1 thread"
    rows.append((what + scaled, median(("bars", 1)), "s"))
    rows.append(("AIS, 100 particles, 1,000 temperatures, 1 thread", median(("AIS", 1)), "s"))
    rows.append(("products in AIS", median(("AIS products", 1), ("AIS", 1), 100), "%"))
    if ("1 × 2 threads", 2) in times:
        value = median(("1 × 2 threads", 2), ("2 × 1 thread", 2))
        rows.append(("updates per second, 2 trials × 1 thread / 1 trial × 2 threads", value, "×"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--quick", action="store_true", help="15 seconds, noisier")
    either.add_argument("--record", action="store_true", help="write benchmarks/records/")
    options, start = parser.parse_args(), time.perf_counter()
    about = describe(np) | {"cores": os.cpu_count(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    times = measure(options.quick, about["threads"])
    rows = table(times, options.quick)
    spread = np.median([np.ptp(np.percentile(t, [25, 75])) / np.median(t) for t in times.values()])
    text = "{device}, {cores} cores; numpy {numpy}; {blas}; {date}".format(**about)
    text += f"; took {time.perf_counter() - start:.0f} s; quartiles {spread:.0%} apart"
    text += "; BUSY MACHINE: measure again" if spread > 0.25 else ""
    text += "\n\n| what | value | unit |\n|---|---:|---|\n"
    text += "".join(f"| {what} | {value:.3g} | {unit} |\n" for what, value, unit in rows)
    print(text, end="")
    if options.record:
        seconds_of = {f"{what}, threads {t}": values for (what, t), values in times.items()}
        record = json.dumps({"about": about, "rows": rows, "seconds": seconds_of}, indent=1)
        path = ROOT / f"benchmarks/records/cpu-{about['date']}"
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".json").write_text(record + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
