"""uv, pip, conda and Docker give the same environment.

uv resolves pyproject.toml, whose ``exclude-newer`` fixes the versions; envs/requirements.txt is
what it then has, as EXPORT prints it, and envs/environment.yaml names the direct dependencies.
"""

import re
import shutil
import subprocess
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from sdcpd import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "envs/Dockerfile").read_text()
EXPORT = ["uv", "export", "--no-dev", "--no-hashes", "--no-emit-project", "--no-annotate"]
EXPORT += ["--no-header"]
OTHER_NAMES = {"matplotlib-base": "matplotlib"}  # of conda: without a graphical interface


def conda():
    """name -> X.Y of envs/environment.yaml, with the names of PyPI."""
    listed = yaml.safe_load((ROOT / "envs/environment.yaml").read_text())["dependencies"]
    pairs = dict(line.split(" =") for line in listed)
    return {OTHER_NAMES.get(name, name): version for name, version in pairs.items()}


def pinned(**environment):
    """name -> version of envs/requirements.txt that holds here, or in another environment."""
    lines = (ROOT / "envs/requirements.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines]
    assert all(len(each.specifier) == 1 for each in wanted)
    here = [each for each in wanted if not each.marker or each.marker.evaluate(environment)]
    return {each.name: str(each.specifier).removeprefix("==") for each in here}


def agree(version, short):
    """Whether a version is one of X.Y."""
    return version.split(".")[: short.count(".") + 1] == short.split(".")


def test_conda_has_every_dependency_and_no_other():
    direct = {Requirement(each).name for each in PROJECT["dependencies"]}
    optional = {Requirement(each).name for each in PROJECT["optional-dependencies"]["jupyter"]}
    assert set(conda()) == direct | optional | {"python"}


def test_conda_has_the_versions_that_uv_resolves():
    python = conda()["python"]
    pins = pinned(python_version=python, python_full_version=f"{python}.0")
    for name, version in conda().items():
        if name in pins:
            assert agree(pins[name], version), f"{name} ={version}, but {pins[name]} with uv"


def test_versions_are_within_the_ranges_of_the_project():
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["jupyter"]
    for each in map(Requirement, wanted):
        versions = {pinned().get(each.name), conda()[each.name]} - {None}
        assert all(each.specifier.contains(version) for version in versions), (each, versions)


def test_running_environment_is_the_pinned_one():
    found = {name: metadata.version(name) for name in pinned()}
    assert found == pinned()


def test_requirements_are_what_uv_resolves():
    if not (shutil.which("uv") and (ROOT / "uv.lock").exists()):
        pytest.skip("no uv here, or it has not resolved anything here yet (uv.lock)")
    done = subprocess.run(
        [*EXPORT, "--quiet", "--frozen", "--offline"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "envs/requirements.txt").read_text()


def test_every_python_is_one_that_the_project_allows():
    allowed = SpecifierSet(PROJECT["requires-python"])
    images = re.findall(r"^FROM python:([\d.]+)-slim$", DOCKERFILE, re.M)
    assert images == [conda()["python"]]
    assert Version(images[0]) in allowed


def test_docker_uses_uv():
    """And so the versions that are fixed by the date."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]
    assert re.match(r"\d{4}-\d\d-\d\d", tool["exclude-newer"])
    assert re.search(r"^RUN uv sync\b", DOCKERFILE, re.M)
    assert '"uv", "run", "snakemake"' in DOCKERFILE
