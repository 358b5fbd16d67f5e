"""Print what would run, and what it costs: jobs, time, memory, disk and downloads of each target.

What would run is asked from snakemake itself: in its graph, jobs that need not run are dashed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path

import psutil

from sdcpd import archive, cli, costs, data, engine, experiments, likelihood

sys.stdout, sys.stderr = map(cli.Patient, (sys.stdout, sys.stderr))
KEPT = 3600  # seconds for which a calibration is used again
NAMES = {"timing": "table1_timing", "replay": "replay_mnist"}  # of rules without wildcards
FORM = "{:<38} {:>8} {:>7} {:>7} {:>8}  {}"
config, params = snakemake.config, snakemake.params
groups = experiments.read_hyperparameters()


def ask():
    """All jobs: number -> (rule, wildcards, whether it must run), and number -> needed numbers."""
    with tempfile.TemporaryDirectory() as folder:
        same = Path(folder) / "config.json"  # whatever the caller has set
        same.write_text(json.dumps(config), encoding="utf-8")
        program = [sys.executable, "-m", "snakemake", "--dag", "dot", "--cores", str(params.cores)]
        how = {"capture_output": True, "text": True, "errors": "replace"}
        done = subprocess.run([*program, "--configfile", same], **how)
    if done.returncode:
        sys.exit(f"snakemake does not say what would run:\n{done.stderr}")
    nodes = {}
    node = r'^\s*(\d+)\[label = "(.*?)", .*style="(.*?)"\];$'
    for number, label, style in re.findall(node, done.stdout, re.M):
        rule, *pairs = label.split("\\n")
        nodes[number] = rule, dict(pair.split(": ", 1) for pair in pairs), "dashed" not in style
    needs = {number: [] for number in nodes}
    for needed, number in re.findall(r"^\s*(\d+) -> (\d+)$", done.stdout, re.M):
        needs[number].append(needed)
    return nodes, needs


def with_needs(number):
    """This job and all that it needs, and so on."""
    found, todo = set(), [number]
    while todo:
        if (number := todo.pop()) not in found:
            found.add(number)
            todo += needs[number]
    return found


def calibration():
    """Rates of this machine and engine, at most an hour old, and when they were measured."""
    path = Path(".snakemake/calibration.json")
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["engine"] == params.backend and time.time() - stored["made"] < KEPT:
            return stored["rates"], stored["made"]
    print("measuring how fast this machine is …", file=sys.stderr, flush=True)
    os.environ["SDCPD_PROGRESS_LOG"] = os.devnull
    rates, made = costs.calibrate(engine.select(params.backend)), time.time()
    with data.whole_file(path) as file:
        json.dump({"engine": params.backend, "made": made, "rates": rates}, file, indent=1)
    return rates, made


def job_of(rule, wildcards):
    """The ``costs.Job`` of a job of the workflow."""
    names = [wildcards.get(n) for n in ("experiment", "group", "kind", "algorithm", "n_hidden")]
    which = [name for name in names if name]
    plain, extra = costs.Job(rates["notebook"]), 0.0
    if rule == "download":
        size = to_download(f"{wildcards['folder']}/{wildcards['file']}")
        return costs.Job(2 + size / 2e6, 0.1e9, size, size)  # 2 MB a second
    # The graph names what no needed job has: nothing, of a run that is put together from parts.
    if rule in ("train", "train_part") and which:
        settings = experiments.run_settings(config, groups, *which)
        if rule == "train_part":
            settings["trials"] = int(wildcards["last"]) - int(wildcards["first"]) + 1
        plain = costs.job(settings, rates)
    elif rule == "sweep":
        plain = costs.job(experiments.sweep_settings(config, groups, *which), rates)
    elif rule == "replay":
        settings = settings_of(params.replay) | {"epochs": 1}
        files = data.files_of(settings["dataset"])
        missing = sum(to_download(file) for file in files if not Path("data", file).exists())
        plain = costs.job(settings, rates)._replace(download=missing)
        plain = plain._replace(disk=plain.disk + missing)
    elif rule == "timing":
        extra, plain = timing(**config["timing"]), plain._replace(cores=params.cores)
    elif rule == "validation":  # draws 50 × 7 units of 200,000 chains, and those of AIS
        part = config["validation"]
        particles = part["ais_models"] * part["n_particles"] * part["n_temperatures"]
        extra = (50 * 7 * 200_000 + 32 * particles) / 27_200 * small_update()  # which draws 27,200
    elif (name := wildcards.get("name")) in params.notebooks:
        extra, memory = measuring(**params.notebooks[name])
        plain = plain._replace(memory=memory)
    computes = extra or which or rule == "replay"
    gpus = int(bool(computes) and params.backend.startswith("cupy"))
    return plain._replace(seconds=plain.seconds + extra, gpus=gpus)


def measuring(runs, folder="", trials=1, seeds=0, n_images=0, n_chains=0, n_steps=0, **_):
    """Seconds and memory of samples, of the search for modes, or of the quality of images."""
    if folder.startswith("workflow/archive"):
        return 0.0, costs.NOTEBOOK_MEMORY
    seconds, everything = 0.0, [settings_of(run) for run in runs]
    for settings in everything:
        each = costs.Work(gibbs_steps=n_steps)
        if seeds:  # as many evaluations, and chains
            n = settings["ais"]["n_temperatures"]
            temperatures = n + likelihood.trusted_temperatures(**settings["ais"])
            each = costs.Work(gibbs_steps=n_steps * seeds, temperatures=temperatures * seeds)
        models = min(settings["trials"], trials)
        rows = {"batch_size": n_chains or n_images or settings["batch_size"]}
        seconds += costs.seconds(settings | rows, rates, each, models)
    return seconds, costs.memory(everything[0]) if folder else costs.NOTEBOOK_MEMORY


def settings_of(folder):
    """Settings of a run, archived or to be made; an archived one has one model."""
    if archive.holds(folder):
        return archive.settings_of(folder) | {"trials": 1}
    experiment, group, name = Path(folder).parts[-3:]
    which = name.removesuffix("h").rsplit("-", 1)
    return experiments.run_settings(config, groups, experiment, group, *which)


def timing(trials, large, bars_and_stripes, whole):
    """Seconds of Table 1."""
    size = large["n_visible"] * large["n_hidden"] / 784 / 500
    updates = trials * (large["n_updates"] + max(1, large["n_updates"] // 20))  # some to warm up
    inner = 2 * updates + len(whole) * large["total_updates"]
    small = trials * bars_and_stripes["n_updates"] * 5 * small_update(1)
    return small + size * (3 * updates * rates["cd"] + inner * rates["sdcp_d"])


def small_update(trials=costs.SMALL_TRIALS):
    """Seconds of an update of Bars & Stripes."""
    return costs.SMALL_STEPS * (rates["small_call"] + rates["small_replica"] * trials)


def to_download(file):
    """Bytes of a data file that must come from the internet; 0 where a mirror folder has it."""
    mirror = config["data_mirror"] or os.environ.get("SDCPD_DATA_MIRROR")
    return 0 if mirror and (Path(mirror) / file).exists() else params.bytes[file]


def total(numbers):
    """Wall time, peak memory, disk and downloads of these jobs."""
    wall, peak = costs.schedule({n: jobs[n] for n in numbers}, needs, params.cores)
    disk, download = (sum(getattr(jobs[n], what) for n in numbers) for what in ("disk", "download"))
    return wall + asking, peak, disk, download  # snakemake would find out what to run again


def line(name, numbers):
    """What is printed of a target: what its jobs cost, and how many of each rule would run."""
    numbers = [n for n in numbers if n in jobs]
    if not numbers:
        return f"{name:<38} up to date"
    wall, peak, disk, download = total(numbers)
    count = Counter(nodes[n][0] for n in numbers)
    order = sorted(count, key=lambda rule: (rule not in ("train", "sweep"), -count[rule]))
    text = f"{len(numbers)}: " + ", ".join(f"{count[rule]} {rule}" for rule in order)
    sizes = f"{peak / 1e9:.1f} GB", f"{disk / 1e6:.0f} MB", f"{download / 1e6:.0f} MB"
    indent = " " * len(FORM.format(*[""] * 6))
    return FORM.format(name, duration(wall), *sizes, f"\n{indent}".join(textwrap.wrap(text, 45)))


def duration(seconds):
    """With two significant digits."""
    units = (("s", 1, 60), ("min", 60, 120), ("h", 3600, 48), ("days", 86400, float("inf")))
    unit, size, _ = next(u for u in units if seconds / u[1] < u[2])
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def verdict():
    """Whether memory and disk are enough."""
    _, *needed, _ = total(jobs)
    free = psutil.virtual_memory().available, shutil.disk_usage(".").free
    said = f"{free[0] / 1e9:.1f} GB of memory and {free[1] / 1e9:.1f} GB of disk are free"
    enough = all(a < b for a, b in zip(needed, free, strict=True))
    return f"Enough: {said}." if enough else f"NOT ENOUGH: {said}; with fewer --cores less is used."


started = time.perf_counter()
nodes, needs = ask()
asking = time.perf_counter() - started
rates, made = calibration()
jobs = {n: job_of(*what) for n, (*what, must) in nodes.items() if must and what[0] != "all"}
(everything,) = (n for n, (rule, *_) in nodes.items() if rule == "all")
lines = [FORM.format("target", "time", "memory", "disk", "download", "jobs")]
for number in needs[everything]:
    rule, wildcards, _ = nodes[number]
    lines.append(line(wildcards.get("name", NAMES.get(rule, rule)), with_needs(number)))
lines += [
    line("together, shared jobs once", nodes),
    "",
    f"Scale {params.scale}, engine {params.backend}, {params.cores} cores. An estimate, from "
    f"rates measured here at {time.strftime('%H:%M', time.localtime(made))}:",
    f"an update of CD {1e3 * rates['cd']:.0f} ms, of S-DCP-D {1e3 * rates['sdcp_d']:.0f} ms, a "
    f"temperature of AIS {1e3 * rates['temperature']:.1f} ms (784 × 500);",
    f"1,000 updates of Bars & Stripes {1e3 * small_update():.1f} s (25 trials); "
    f"a notebook {rates['notebook']:.0f} s.",
    verdict(),
]
Path(snakemake.log[0]).write_text("\n".join(lines) + "\n", encoding="utf-8")
print("\n".join(lines))
