"""The site and its pages: what they say, that they read offline, and how a browser shows them."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from sdcpd import ROOT

sys.path.insert(0, str(ROOT / "workflow/scripts"))
import make_site
from pages import notebook_page

NAMES = "chromium", "chromium-browser", "google-chrome"
BROWSER = next(filter(None, map(shutil.which, NAMES)), "")
VOID = {"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
PNG += "RU5ErkJggg=="  # one pixel
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="300"></svg>'


class Page(HTMLParser):
    """The ids, links and resources of a page, and what is wrong with its tags."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.resources, self.wrong, self.open = [], [], [], [], []
        self.text = Path(path).read_text(encoding="utf-8")
        self.feed(self.text)
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]
        self.wrong += [f"id {i} again" for n, i in enumerate(self.ids) if i in self.ids[:n]]

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img" and not known.get("alt"):
            self.wrong.append("an image without words")
        if tag == "style" and "head" not in self.open:
            self.wrong.append("a style outside the head")
        self.ids += [known["id"]] if "id" in known else []
        self.links += [known["href"]] if tag == "a" and "href" in known else []
        self.resources += [known[k] for k in ("src", "srcset", "data", "poster") if k in known]
        self.resources += [known["href"]] if tag == "link" else []

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")
            self.open.clear()


def check_page(path):
    """Assert that a page is well formed, reads offline, and that all it leads to is there."""
    found = Page(path)
    assert not found.wrong, (path, found.wrong)
    assert found.text.startswith("<!DOCTYPE html>\n<html lang=")
    assert "<script" not in found.text and not re.search(r"@import|url\(", found.text)
    for link in [*found.resources, *found.links]:
        if link.startswith("data:") or (link in found.links and link.startswith("https://")):
            continue
        assert not re.match(r"[a-z]+:|/", link), f"{path}: {link[:80]} leads elsewhere"
        target, _, fragment = link.partition("#")
        target = (path.parent / unquote(target)) if target else path
        assert target.exists(), f"{path}: no {link}"
        assert not fragment or fragment in Page(target).ids, f"{path}: no {link}"
    return found


def check_in_browser(pages, folder):
    """Assert that these pages fit a phone and a desktop, with all images and no error."""
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        """<!DOCTYPE html><title>pages in frames</title><body><script>
        const frame = (page, width) => new Promise(resolve => {
          const f = document.body.appendChild(document.createElement("iframe"));
          f.onload = () => {
            const d = f.contentDocument, root = d.documentElement;
            resolve({page, width, too_wide: root.scrollWidth - root.clientWidth,
              images: d.images.length,
              broken: [...d.images].filter(i => !i.naturalWidth).map(i => i.src)});
          };
          [f.width, f.height, f.src] = [width, 800, page];
        });
        Promise.all(PAGES.flatMap(p => [frame(p, 360), frame(p, 1280)])).then(
          found => { document.body.textContent = "found " + JSON.stringify(found) + " end"; });
        </script>""".replace("PAGES", json.dumps([page.resolve().as_uri() for page in pages]))
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"]
    options += ["--enable-logging=stderr", "--v=0", "--dump-dom", wrapper.as_uri()]
    done = subprocess.run([BROWSER, *options], capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    assert not said, said
    found = json.loads(re.search(r"found (\[.*\]) end", done.stdout, re.S)[1])
    assert len(found) == 2 * len(pages)
    for one in found:
        assert one["too_wide"] <= 0 and not one["broken"], one
    return found


needs_browser = pytest.mark.skipif(not BROWSER, reason="no chromium or chrome on this machine")


def notebook(path, **parameters):
    """An executed notebook with a picture, wide code and a table as pandas writes it."""
    row = f"<tr><td>{'long text ' * 9}</td>{'<td>7</td>' * 40}</tr>"
    table = f'<style scoped>th {{color: red}}</style><table border="1">{row}</table>'
    outputs = [
        new_output("display_data", {"image/png": PNG, "text/plain": "<Figure>"}),
        new_output("display_data", {"text/html": table, "text/plain": "table"}),
        new_output("stream", text="1 < 2 & 3\n" + "wide " * 99),
    ]
    cells = [
        new_markdown_cell("# What\n\nText with `code`, a https://example.org address and a | b."),
        new_markdown_cell("## Numbers\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        new_code_cell(f"x = 1  # {'wide ' * 99}", execution_count=1, outputs=outputs),
        new_markdown_cell("## Numbers"),
    ]
    known = {"papermill": {"parameters": parameters}}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=known), path)
    return path


CLAIMS = """no.,claim,dataset,tuned,verdict
1,"A < B, always",MNIST,1.0,reproduced
1,"A < B, always",CalTech,0.1,not reproduced
"2, end",C is small,MNIST,,not run
"2, speed",C is fast,MNIST,,not run
"""
PARTS = [
    ("Table 1", "timing", "csv", {"table1_timing": "Time"}),
    ("Figures", "curves", "svg", {"fig1": "Figure 1: A & B", "fig2": "Figure 2"}),
    ("Nothing of this kind", "tune", "svg", {}),
    ("Claims", "claims", "csv", {"claims": "The claims"}),
]
RUN, SWEEP = "results/smoke/runs/b/as_published/cd-4h", "results/smoke/sweeps/b/tuning/cd-4h"
PART = "results/smoke/parts/b/as_published/cd-4h/0-1"
OLD = "workflow/archive/runs/mnist/as_published/cd-500h"
SITE = {
    "parts": PARTS,
    "runs": {RUN: "train-b", SWEEP: "sweep-b", OLD: None},
    "results": "results/smoke",
    "options": {"scale": "smoke", "experiments": {"a": 1}},
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small project after a call that made all but figure 2."""
    monkeypatch.chdir(tmp_path)
    made = {"table1_timing": {"archived": None}, "claims": {}, "sweep-b": {}}
    made |= {"fig1": {"runs": [RUN, OLD], "deep": {"a": [SWEEP]}}, "train-b": {"parts": [PART]}}
    for name, parameters in made.items():
        folder = "results/smoke" if "-" in name else "results"
        path = notebook(Path(f"{folder}/notebooks/{name}.ipynb"), **parameters)
        path.with_suffix(".html").write_text(notebook_page(path, name), "utf-8")
    for folder in ("workflow/report", "figures", "logs/benchmarks/smoke", RUN, PART, SWEEP, OLD):
        Path(folder).mkdir(parents=True, exist_ok=True)
    for caption in ("timing", "curves", "tune", "claims"):
        Path(f"workflow/report/{caption}.rst").write_text(f"Caption of {caption} & more.\n")
    for name in ("fig1", "fig2"):  # the second is of an earlier call
        for suffix in ("svg", "pdf"):
            Path(f"figures/{name}.{suffix}").write_text(SVG)
    for name, text in (("table1_timing", "a,b\n1,<2\n"), ("claims", CLAIMS)):
        Path(f"figures/{name}.csv").write_text(text)
        Path(f"figures/{name}.md").write_text(f"About {name}.\n\n| a |\n")
    took = {"fig1": 7, "train-b": 3, "train-b-0-1": 97, "sweep-b": 300}
    for name, seconds in took.items():
        Path(f"logs/benchmarks/smoke/{name}.tsv").write_text(f"s\th:m:s\n{seconds}.2\t0:00:07\n")
    return tmp_path


def test_notebook_page_reads_offline(tmp_path):
    path = tmp_path / "page.html"
    page = notebook_page(notebook(tmp_path / "any.ipynb"), "fig<1")
    path.write_text(page)
    check_page(path)
    assert "<title>fig&lt;1</title>" in page and 'alt="Numbers (fig&lt;1)"' in page
    assert "color: red" not in page and 'border="1"' not in page
    assert "1 &lt; 2 &amp; 3" in page and len(page) < 20_000


def test_index_shows_what_was_made_in_order(project):
    make_site.write(**SITE)
    found = check_page(project / "figures/site/index.html")
    text = found.text
    order = [text.index(f'id="{i}"') for i in ("table1_timing", "fig1", "fig2", "claims", "runs")]
    assert order == sorted(order) and "Nothing of this kind" not in text
    pages = project / "figures/site/notebooks"
    back = {page.stem: check_page(page).links[0] for page in pages.iterdir()}
    assert back["fig1"] == "../index.html#fig1" and back["train-b"] == "../index.html#runs"
    assert '<img src="images/fig1.svg" alt="Figure 1: A &amp; B">' in text
    assert "Caption of curves &amp; more." in text and "<td>&lt;2</td>" in text
    assert "About table1_timing." in text and ">figures/fig1.pdf<" in text
    options = "--config scale=smoke &#39;experiments="
    assert f"uv run snakemake --cores all figures/fig1.pdf {options}" in text
    assert f"figures/table1_timing.md {options}" in text
    assert "Time: 7\u00a0s here, and 7\u00a0min for the training behind it; 1 of its" in text
    assert "Time: (not recorded) here</li>" in text  # of the table
    for folder in (RUN, SWEEP, OLD):
        assert f'<a href="../../{folder}"><code>{folder}</code></a>' in text
    assert str(project) not in text


def test_what_was_not_made_is_not_shown(project):
    make_site.write(**SITE)
    text = Path("figures/site/index.html").read_text()
    part = text[text.index('id="fig2"') :].split("</article>")[0]
    assert "Not made." in part and "figures/fig2.pdf" in part and "<img" not in part
    shutil.rmtree(Path(RUN).parent)
    # files that exist, but of another call
    missing = [f"results/notebooks/{name}.html" for name in ("fig1", "claims")]
    missing.append("results/smoke/notebooks/train-b.html")
    make_site.write(**SITE, missing=missing)
    found = check_page(project / "figures/site/index.html")
    assert "<img" not in found.text and "The claims were not judged." in found.text
    assert "cd-4h not made" in found.text
    assert not Path("figures/site/notebooks/train-b.html").exists()


def test_findings_are_those_of_the_claims(project):
    make_site.write(**SITE)
    text = Path("figures/site/index.html").read_text().replace("\n", " ")
    assert "2 claims of the paper, 4 verdicts, each on one dataset: 1 reproduced, " in text
    assert "1 not reproduced, 2 not run (" in text
    assert "<strong>Reproduced</strong>: A &lt; B, always (MNIST).</li>" in text
    assert "<strong>Not reproduced</strong>: A &lt; B, always (CalTech).</li>" in text
    assert "<strong>Not run</strong>: MNIST (2).</li>" in text


def test_after_a_failure_only_where_the_site_was_asked_for(project):
    def job(rule, *output):
        parameters = SimpleNamespace(site=SITE)
        return SimpleNamespace(rule=SimpleNamespace(name=rule), output=output, params=parameters)

    def write(*jobs):
        make_site.write_after_failure(SimpleNamespace(needrun_jobs=lambda: iter(jobs)))
        return Path("figures/site/index.html").exists()

    failed = job("curves", "figures/fig1.svg", "results/notebooks/fig1.html")
    assert not write(failed)
    assert not write(job("site"), job("all"))  # it failed itself
    assert write(failed, job("site"), job("all"))
    assert "<img" not in Path("figures/site/index.html").read_text()


@needs_browser
def test_pages_fit_a_phone_and_a_desktop(project, tmp_path_factory):
    make_site.write(**SITE)
    site = project / "figures/site"
    pages = [site / "index.html", site / "notebooks/fig1.html"]
    found = check_in_browser(pages, tmp_path_factory.mktemp("browser"))
    assert [one["images"] for one in found] == [1, 1, 1, 1]


@needs_browser
def test_browser_check_sees_what_is_wrong(tmp_path):
    for body in ('<img src="none.png" alt="none">', '<p style="width: 500px">wide</p>'):
        (tmp_path / "page.html").write_text(f"<!DOCTYPE html><title>x</title>{body}")
        with pytest.raises(AssertionError):
            check_in_browser([tmp_path / "page.html"], tmp_path)
