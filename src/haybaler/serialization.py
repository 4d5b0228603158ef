"""Serializing the parts of a hook or compactor, with an error that names what cannot be serialized."""

import inspect
from typing import Any

from haystack.utils.deserialization import deserialize_component_inplace

from haybaler.errors import NotSerializableError


def serialized(part: object, role: str) -> dict[str, Any]:
    """
    Return what a part's `to_dict` gives, checked.

    :param part: A compactor, counter, policy or store.
    :param role: What it is, for the error.
    :returns: A dictionary with `type` and `init_parameters`.
    :raises NotSerializableError: If there is no usable `to_dict`, or it leaves out a required constructor argument.
    """
    name = type(part).__name__
    to_dict = getattr(part, "to_dict", None)
    data = to_dict() if callable(to_dict) else None
    if not isinstance(data, dict) or "type" not in data:
        raise NotSerializableError(
            f"The {role} {name} cannot be serialized: give it a `to_dict` that returns its settings."
        )
    missing = [n for n in _required(part) if n not in data.get("init_parameters", {})]
    if missing:
        raise NotSerializableError(
            f"The {role} {name} cannot be serialized: its `to_dict` leaves out the constructor's {', '.join(missing)}."
        )
    return data


def _required(part: object) -> list[str]:
    parameters = inspect.signature(type(part)).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named and p.default is inspect.Parameter.empty]


def deserialize_parts(data: dict[str, Any], *names: str) -> None:
    """
    Replace serialized parts among the `init_parameters` by the objects they describe.

    :param data: The serialized form of the whole; changed in place.
    :param names: The parameters that hold parts; one that is missing or None is left alone.
    """
    parameters = data.get("init_parameters", {})
    for name in names:
        if parameters.get(name) is not None:
            deserialize_component_inplace(parameters, key=name)
