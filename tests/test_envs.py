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

from sdcpd import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXPORT = "uv export --no-dev --no-hashes --no-emit-project --no-annotate --no-header"
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


def test_conda_has_every_dependency_and_no_other_in_the_versions_of_uv():
    listed = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["jupyter"]
    ranges = {each.name: each.specifier for each in map(Requirement, listed)}
    versions = conda()
    python = versions.pop("python")
    assert set(versions) == set(ranges)
    pins = pinned(python_version=python, python_full_version=f"{python}.0")
    for name, version in versions.items():  # X.Y
        assert version in ranges[name], name
        pin = pins.get(name, version)  # of what is optional there is none
        assert pin in ranges[name] and f"{pin}.".startswith(f"{version}."), f"{name}: {pin} with uv"


def test_running_environment_is_the_pinned_one():
    found = {name: metadata.version(name) for name in pinned()}
    assert found == pinned()


def test_requirements_are_what_uv_resolves():
    if not (shutil.which("uv") and (ROOT / "uv.lock").exists()):
        pytest.skip("no uv here, or it has not resolved anything here yet (uv.lock)")
    program = f"{EXPORT} --quiet --frozen --offline".split()
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "envs/requirements.txt").read_text()


def test_docker_has_the_python_of_conda():
    file = (ROOT / "envs/Dockerfile").read_text()
    (python,) = re.findall(r"^FROM python:([\d.]+)-slim$", file, re.M)
    assert python == conda()["python"]
    assert python in SpecifierSet(PROJECT["requires-python"])
