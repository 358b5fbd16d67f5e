"""How the time of an update grows with the size of the work, one size varied at a time.

    uv run python benchmarks/growth.py               2–4 minutes

S-DCP-D with 784 × 500, batch 200, K = 24 (6 × 4) and one replica, but for what the row says.
"""

from common import (
    BATCH, K, M, N, Record, arguments, engines, np, replicate, take_turns, trained_model,
    training_rows, update_task,
)  # fmt: skip

SIZES = {
    "batch": (50, 100, 200, 400, 800),
    "hidden": (125, 250, 500, 1000, 2000),
    "K": (1, 6, 24, 48, 96),
    "replicas": (1, 2, 5, 10, 20, 50, 100, 200),
}


def main():
    options = arguments(__doc__)
    engine = engines.select(options.backend)
    images, source = training_rows()
    record = Record(
        "growth", f"S-DCP-D, {M} × {N}, batch {BATCH}, K = {K}, one size varied",
        ["varied", "value", "ms per update and replica", "per unit of work, usual size = 1"],
        engine, options, rows=source,
    )  # fmt: skip
    usual = {"batch": BATCH, "hidden": N, "K": K, "replicas": 1}
    models = {}
    for what, values in SIZES.items():
        found = {}
        for value in values:
            if options.quick and value > 4 * usual[what]:
                continue
            size = usual | {what: value}
            if size["hidden"] not in models:
                models[size["hidden"]] = trained_model(engine, images, 20, size["hidden"])
            theta = replicate(engine, models[size["hidden"]], size["replicas"])
            task = update_task(engine, "sdcp_d", theta, images, size["K"], size["batch"])
            effort = (0.1, 3, 10) if size["replicas"] < 20 or engine.xp is not np else (0, 0, 0)
            found[value] = take_turns({"update": task}, engine.xp, *effort)["update"]
        base = np.median(found[usual[what]]) / usual[what]
        for value, times in found.items():
            each = float(np.median(times))
            shown = 1000 * each / (value if what == "replicas" else 1)
            record.add(what, value, shown, float(each / value / base), times=times)
    record.close(draw)


def draw(axes, rows):
    for what, marker in zip(SIZES, "osD^", strict=True):
        points = [(value, ratio) for name, value, _, ratio in rows if name == what]
        axes.plot(*zip(*points, strict=True), marker + "-", label=what)
    axes.set(
        xscale="log", yscale="log", xlabel="value", ylabel="time per unit of work (usual size = 1)"
    )
    axes.legend()


if __name__ == "__main__":
    main()
