"""Table 1 in the paper's way: one model at a time, beside the paper's seconds.

    uv run python benchmarks/table1.py               1–3 minutes

Training alone, no evaluation. Large: 784 × 500, batch 200, 60,000 updates; Bars & Stripes: 9 × 4,
all 16 patterns, 5,000 updates. The seconds are scaled up from the updates that the record says.
"""

import csv

from common import BATCH, D, K, LABELS, M, N, ROOT, UPDATES, Record, arguments, engines, np

from sdcpd.study.timing import Update, seconds_per_update

LARGE = Update(M, N, BATCH, n_gibbs_steps=K, n_inner_iterations=D, n_gibbs_steps_inner=K // D)
SMALL = Update(9, 4, 16, n_gibbs_steps=4, n_inner_iterations=2, n_gibbs_steps_inner=2)


def main():
    options = arguments(__doc__, updates={"type": int, "help": "updates of the large model"})
    engine = engines.select(options.backend)
    on_gpu = engine.xp is not np
    n_large = options.updates or (200 if on_gpu else 10)
    sizes = {"Bars & Stripes": (SMALL, 5000, 300), "Large datasets": (LARGE, UPDATES, n_large)}
    with (ROOT / "workflow/reference/table1.csv").open(encoding="utf-8") as file:
        paper = {(r["dataset"], r["algorithm"]): float(r["mean"]) for r in csv.DictReader(file)}
    columns = ["data", "algorithm", "s", "σ over trials", "paper (s)", "paper / ours",
               "S-DCP = 1", "paper, S-DCP = 1"]  # fmt: skip
    title = "Table 1: seconds of training, one model at a time"
    record = Record(
        "table1", title, columns, engine, options, updates={k: v[2] for k, v in sizes.items()}
    )
    for data, (update, total, n_updates) in sizes.items():
        trials = 2 if options.quick else 5
        found = seconds_per_update(update, n_updates, range(trials), engine)
        scale = total * np.array(list(found.values()))
        base = np.mean(found["sdcp"]) * total
        for (name, each), values in zip(found.items(), scale, strict=True):
            label = LABELS[name]
            theirs, mean = paper[data, label], float(values.mean())
            record.add(data, label, mean, float(values.std(ddof=1)), theirs, theirs / mean,
                       mean / base, theirs / paper[data, "S-DCP"], times=each)  # fmt: skip
    record.close(draw)


def draw(axes, rows):
    large = [row for row in rows if row[0] == "Large datasets"]
    position = np.arange(len(large))
    axes.bar(position - 0.2, [row[6] for row in large], 0.4, label="ours", color="0.4")
    axes.bar(position + 0.2, [row[7] for row in large], 0.4, label="paper", color="0.75")
    axes.set_xticks(position, [row[1] for row in large])
    axes.set(ylabel="time, S-DCP = 1 (large datasets)")
    axes.legend()


if __name__ == "__main__":
    main()
