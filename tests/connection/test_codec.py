"""What is sent and what is read, byte by byte, without a Redis."""

from __future__ import annotations

from redis import exceptions

from schedq.connection.codec import NOTHING, packed, reader


def test_commands_are_packed_in_redis_protocol():
    assert packed(("SET", "kéy", 12)) == b"*3\r\n$3\r\nSET\r\n$4\r\nk\xc3\xa9y\r\n$2\r\n12\r\n"


def test_bytes_that_are_not_text_are_sent_back_unchanged():
    replies = reader()
    replies.feed(b"$2\r\na\xff\r\n")

    word = replies.gets()

    assert packed(("ECHO", word, 7)) == b"*3\r\n$4\r\nECHO\r\n$2\r\na\xff\r\n$1\r\n7\r\n"


def test_a_reply_is_returned_when_complete_and_errors_are_values():
    replies = reader()
    replies.feed(b"*2\r\n:1\r\n$2\r\nhe")
    assert replies.gets() is NOTHING

    replies.feed(b"\r\n-NOSCRIPT No matching script\r\n-WRONGTYPE no\r\n")

    assert replies.gets() == [1, "he"]
    assert isinstance(replies.gets(), exceptions.NoScriptError)
    assert str(replies.gets()) == "WRONGTYPE no"
    assert replies.gets() is NOTHING
