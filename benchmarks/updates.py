"""Microseconds per parameter update and replica, and the share of the device's limit.

    uv run python benchmarks/updates.py              this machine's fastest engine, 2–4 minutes
    uv run python benchmarks/updates.py --quick      fewer replicas and repetitions
    uv run python benchmarks/updates.py --record     also writes benchmarks/records/updates-…

R models of 784 × 500 with mini-batches of 200 side by side, K = 24 (S-DCP and S-DCP-D: 6 × 4).
The limit is the time of the update's matrix products alone (51, or 61) at the best rate of the
device; on a CPU the engine can beat it, because it does not make most of them. AIS: 100 particles
and 10,000 temperatures, scaled up from fewer.
"""

from functools import partial

from common import (
    LABELS, PRODUCTS, UPDATES, Record, arguments, engines, key, np, product_seconds,
    replicate, seconds, share_of_changes, take_turns, trained_model, training_rows, update_task,
)  # fmt: skip

from sdcpd.log_z import annealed_log_z

TEMPERATURES = 10_000


def main():
    options = arguments(__doc__)
    engine = engines.select(options.backend)
    images, source = training_rows()
    on_gpu = engine.xp is not np
    models = {"at the start": 0, "trained": 60 if options.quick else 300}
    columns = ["algorithm", "model", "replicas", "µs per update and replica", "limit (µs)", "%",
               f"s per model, {UPDATES:,} updates"]  # fmt: skip
    title = "One parameter update, 784 × 500, batch 200, CD-24 cost"
    record = Record("updates", title, columns, engine, options, rows=source)
    limit = product_seconds(engine)
    for model, n_updates in models.items():
        if on_gpu and not n_updates:
            continue  # there, the time does not depend on the states
        theta = trained_model(engine, images, n_updates)
        changes = share_of_changes(theta, images)
        print("units that change in a Gibbs step: visible {:.0%}, hidden {:.0%}".format(*changes))
        record.about[f"changes, {model}"] = changes.tolist()
        for replicas in (1, 10) if options.quick else (1, 10, 50, 100):
            theta_r = replicate(engine, theta, replicas)
            tasks = {a: update_task(engine, a, theta_r, images) for a in LABELS}
            # On a CPU a replica's time hardly depends on how many there are: once is enough.
            effort = (0.2, 5, 30) if replicas < 50 or on_gpu else (0, 0, 0)
            times = take_turns(tasks, engine.xp, *effort)
            for algorithm, values in times.items():
                each = float(np.median(values)) / replicas
                bound = PRODUCTS[algorithm] * limit
                row = LABELS[algorithm], model, replicas, 1e6 * each, 1e6 * bound
                record.add(*row, 100 * bound / each, UPDATES * each, times=values)
        few = 200 if not on_gpu else 1000
        for replicas in (1, 50, 100) if on_gpu and not options.quick else (1,):
            theta_r, keys = replicate(engine, theta, replicas), [key(r) for r in range(replicas)]

            ais = partial(annealed_log_z, theta_r, images.mean(0), keys, 100, few, engine=engine)
            ais()
            each = min(seconds(ais, engine.xp) for _ in range(3)) / replicas * TEMPERATURES / few
            bound = 2 * TEMPERATURES * product_seconds(engine, rows=100)
            record.add("AIS, 100 × 10,000", model, replicas, 1e6 * each, 1e6 * bound,
                       100 * bound / each, each)  # fmt: skip
    record.close(draw)


def draw(axes, rows):
    from sdcpd.figures import STYLES

    for algorithm, (color, marker) in STYLES.items():
        own = [row for row in rows if row[0] == LABELS[algorithm]]
        for model, line in (("trained", "-"), ("at the start", ":")):
            points = [(row[2], row[3] / 1000) for row in own if row[1] == model]
            if points:
                style = {"color": color, "marker": marker, "linestyle": line}
                axes.plot(
                    *zip(*points, strict=True), **style, label=f"{LABELS[algorithm]}, {model}"
                )
    for products, limit in sorted({(PRODUCTS[a], row[4] / 1000) for a in STYLES
                                   for row in rows if row[0] == LABELS[a]}):  # fmt: skip
        axes.axhline(limit, color="0.5", lw=0.8)
        axes.text(2.2, limit, f"limit: {products} products", fontsize=7, color="0.4", va="bottom")
    axes.set(xscale="log", ylim=(0, None), xlabel="models side by side",
             ylabel="ms per update and model")  # fmt: skip
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


if __name__ == "__main__":
    main()
