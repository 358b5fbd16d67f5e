"""Checks of the configuration against workflow/schemas/, each violation one line."""

import yaml
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import best_match

from sdcpd import ROOT
from sdcpd.algorithms import ALGORITHMS

# To JSON Schema 2019.0 is an integer; to the jobs it is none.
WHOLE = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
Validator = validators.extend(Draft202012Validator, type_checker=WHOLE)

HYPERPARAMETERS = {
    "learning_rate": {"type": "number", "exclusiveMinimum": 0},
    "epsilon": {"type": "number", "minimum": 0},
    "lambda_hessian": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
}


def read(name):
    """A schema, completed by what the records of the algorithms say: ``$defs`` algorithm,
    values_of_algorithms (a number for each hyperparameter) and grids_of_algorithms (a list)."""
    text = (ROOT / f"workflow/schemas/{name}.schema.yaml").read_text(encoding="utf-8")
    schema = yaml.safe_load(text)
    lists = {
        name: {"type": "array", "minItems": 1, "uniqueItems": True, "items": number}
        for name, number in HYPERPARAMETERS.items()
    }
    schema.setdefault("$defs", {}).update(
        algorithm={"enum": [*ALGORITHMS]},
        values_of_algorithms=_closed({a: _of(a, HYPERPARAMETERS) for a in ALGORITHMS}),
        grids_of_algorithms=_closed({a: _of(a, lists) for a in ALGORITHMS}),
    )
    return schema


def _of(algorithm, kinds):
    """The hyperparameters that are chosen for an algorithm, all of them required."""
    names = [n for n in ("learning_rate", *ALGORITHMS[algorithm].needs) if n in kinds]
    return _closed({name: kinds[name] for name in names}) | {"required": names}


def _closed(properties):
    return {"type": "object", "additionalProperties": False, "properties": properties}


def violation(name, values):
    """The first violation of a schema, in a line; None: there is none. (Snakemake's own validate()
    prints the whole schema.)"""
    error = best_match(Validator(read(name)).iter_errors(values))
    if error:
        where = ".".join(str(part) for part in error.absolute_path)
        return ": ".join(part for part in (name, where, error.message) if part)
    return None
