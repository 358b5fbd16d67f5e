"""Write the README's performance table from the newest records.

uv run python benchmarks/readme.py               changes README.md
uv run python benchmarks/readme.py --check       fails if it is not what the records say
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- performance: benchmarks/readme.py -->\n", "<!-- end of performance -->\n"


def newest(name, device):
    """The newest record of this name, or None."""
    paths = sorted((ROOT / "benchmarks/records").glob(f"{name}-{device}-*.json"))
    return (
        json.loads(paths[-1].read_text(encoding="utf-8")) | {"path": paths[-1]} if paths else None
    )


def link(record, text):
    path = record["path"].with_suffix(".md").relative_to(ROOT).as_posix()
    return f"[{text}]({path})"


def section(device, title):
    """The table of one kind of device."""
    records = {name: newest(name, device) for name in ("updates", "peers", "bars", "table1")}
    if not records["updates"]:
        return [f"**{title}**: not measured yet; `benchmarks/gpu.sh` is what measures it.", ""]
    about = records["updates"]["about"]
    where = f"{about['device']}, {about['date']}"
    lines = [f"**{title}** ({where})", ""]
    on_gpu = device == "gpu"
    lines += ["| what | value | record |", "|---|---:|---|"]
    for algorithm, model, replicas, micro, _, share, seconds in records["updates"]["rows"]:
        if algorithm.startswith("AIS"):
            value = f"{seconds:.3g} s a model"
        elif algorithm in ("CD", "S-DCP-D"):
            value = f"{micro / 1000:.3g} ms" if device == "cpu" else f"{micro:.3g} µs"
            value += f" = {100 / share:.2f} × the products alone"
        else:
            continue
        if replicas in ((1,) if device == "cpu" else (1, 50)):
            what = algorithm if algorithm.startswith("AIS") else f"one update of {algorithm}"
            what += f", {replicas} model" + "s side by side, each" * (replicas > 1)
            lines.append(f"| {what}; {model} | {value} | {link(records['updates'], 'updates')} |")
    if records["peers"]:
        for what, who, milli, ratio, version, *_ in records["peers"]["rows"]:
            if not who.startswith("this project") or on_gpu:
                name = {"update": "one CD-24 update", "AIS": "AIS, 100 × 10,000"}[what]
                value = f"{milli:,.0f} ms = {ratio:.2f} × this project in the same run"
                who = f"{who} {version}".strip()
                lines.append(f"| {name}: {who} | {value} | {link(records['peers'], 'peers')} |")
    if records["bars"]:
        total = records["bars"]["rows"][-1][2]
        what = "Bars & Stripes: 5 algorithms × 3 sizes × 25 trials × 5,000 updates"
        lines.append(f"| {what} | {total:.3g} s | {link(records['bars'], 'bars')} |")
    return [*lines, ""]


def main():
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    lines = ["", *section("cpu", "One CPU core"), *section("gpu", "One GPU")]
    new = before + START + "\n".join(lines) + "\n" + END + after
    if "--check" in sys.argv[1:]:
        sys.exit("README.md: run benchmarks/readme.py" if new != text else 0)
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
