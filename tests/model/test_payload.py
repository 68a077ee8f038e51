"""A payload reads back unchanged, or is refused; stored text is read, or is known to be unreadable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import UsageError
from schedq.model.payload import UnreadablePayload, clean_text, decode, encode, encode_result

LIMIT = 10**6
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


@given(JSON)
def test_json_is_read_back_unchanged_type_by_type(value: object):
    text = encode(value, LIMIT)

    found = decode(text)

    assert found == value
    assert repr(found) == repr(value)  # 1 is not 1.0, and True is not 1


@given(JSON)
def test_its_text_is_plain_json_that_any_language_reads(value: object):
    assert json.loads(encode(value, LIMIT)) == value


@given(JSON, st.integers(1, 60))
def test_the_limit_is_in_bytes(value: object, limit: int):
    size = len(encode(value, LIMIT).encode())

    if size <= limit:
        assert encode(value, limit)
    else:
        with pytest.raises(UsageError, match="max_payload"):
            encode(value, limit)


def test_tuples_become_lists():
    assert decode(encode((1, (2, 3)), LIMIT)) == [1, [2, 3]]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [{"b": {1: 2}}]}, r"payload\['a'\]\[0\]\['b'\] has the key 1"),
        ({None: 1}, "payload has the key None"),
        ([1, float("nan")], "not JSON"),
        (float("-inf"), "not JSON"),
        (b"x", "not JSON"),
        ({"a": {1, 2}}, "not JSON"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
    ],
    ids=repr,
)
def test_what_json_would_change_silently_is_refused_and_the_place_named(value: object, place: str):
    with pytest.raises(UsageError, match=place):
        encode(value, LIMIT)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_an_end():
    assert decode(encode(nested(100), LIMIT)) == nested(100)
    for depth in (101, 5000):
        with pytest.raises(UsageError, match="deeper than 100"):
            encode(nested(depth), LIMIT)


def test_what_holds_itself_is_refused():
    value: list[Any] = []
    value.append(value)

    with pytest.raises(UsageError, match="deeper"):
        encode(value, LIMIT)


@given(st.text())
def test_any_stored_text_is_read_or_known_to_be_unreadable(text: str):
    try:
        decode(text)
    except UnreadablePayload as error:
        assert "not JSON" in str(error)  # either result is right


@given(st.binary())
def test_bytes_that_are_not_text_are_unreadable(data: bytes):
    text = b'"' + data + b'"'
    try:
        text.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnreadablePayload):
            decode(text.decode(errors="surrogateescape"))


@pytest.mark.parametrize(
    "text", ["", "nope", "NaN", "Infinity", "[NaN]", "{'a': 1}", "[1,]", "1 2", "[" * 100_000, "9" * 5000]
)
def test_nearly_valid_json_is_unreadable(text: str):
    with pytest.raises(UnreadablePayload):
        decode(text)


@given(JSON)
def test_a_result_that_is_json_is_stored_unchanged(value: object):
    assert encode_result(value, LIMIT) == (encode(value, LIMIT), "")


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, float("nan"), "\ud800", nested(200), "x" * 2000], ids=lambda v: repr(v)[:20]
)
def test_any_other_result_is_stored_as_its_text_form_with_the_reason(value: object):
    text, problem = encode_result(value, 1000)

    assert isinstance(decode(text), str)
    assert problem.isprintable()
    assert problem


@given(st.text(), st.integers(1, 50))
def test_cleaned_text_fits_a_terminal_and_a_hash(text: str, limit: int):
    found = clean_text(text, limit)

    assert len(found) <= limit
    assert all(c.isprintable() or c in "\n\t" for c in found)
    assert found.encode().decode() == found
    assert clean_text(found, limit) == found


def test_clean_text_stays_unchanged():
    assert clean_text("smtp timeout: 30 s\n\tат mail.example.org 🚀") == "smtp timeout: 30 s\n\tат mail.example.org 🚀"
    assert clean_text("\x1b[2Jgone\r\x00") == "�[2Jgone��"
