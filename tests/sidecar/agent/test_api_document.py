"""The OpenAPI document, and that the checks agree with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsidecar.agent import operations
from tests.sidecar.agent.api_calls import DOCUMENT, POSTS, valid
from tests.sidecar.agent.sidecars import (
    training,
)


async def test_every_call_of_the_published_document_exists(directory: Path) -> None:
    async with training(directory) as here:
        status, published = await here.sidecar.call("GET", "/v1/openapi.json")
        assert (status, published) == (200, DOCUMENT)
        assert published["openapi"].startswith("3.1")
        for path, methods in published["paths"].items():
            for method in methods:
                if path not in {"/v1/events", "/v1/stop"}:  # These never end.
                    assert (await here.sidecar.call(method.upper(), path, b"?"))[0] in {200, 400}


def test_every_schema_of_the_document_is_valid() -> None:
    for one in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(one)
    names = set(DOCUMENT["components"]["schemas"])
    references = {text.split('"')[0] for text in json.dumps(DOCUMENT).split("#/components/schemas/")[1:]}
    assert references <= names


def _values() -> st.SearchStrategy[Any]:
    numbers: st.SearchStrategy[Any] = st.sampled_from([-1, 0, 3, 3.0, 2.5, 2**53, 2**53 + 1, 1e300])
    others: st.SearchStrategy[Any] = st.sampled_from([None, True, "", "Step", "x" * 4097, [], {}])
    odd = numbers | others
    return odd | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("aé 1", max_size=5)


@pytest.mark.parametrize("path", POSTS)
@given(data=st.data())
def test_the_api_accepts_exactly_what_the_document_describes(path: str, data: st.DataObject) -> None:
    operation = next(one for one in operations.OPERATIONS if one.path == path)
    assert operation.takes is not None
    body = {**POSTS[path], **data.draw(st.dictionaries(st.sampled_from([*POSTS[path], "other"]), _values()))}
    for name in data.draw(st.sets(st.sampled_from(sorted(POSTS[path])), max_size=2)):
        body.pop(name, None)
    described = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    try:
        operations.check(operation.takes, body)
        taken = True
    except operations.MismatchError:
        taken = False
    assert taken == valid(described, body)
