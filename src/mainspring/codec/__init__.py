"""Encode values, calls and exceptions as JSON text, and decode them by their annotations."""

from mainspring.codec.calls import CallCodec, encode_call, result_codec
from mainspring.codec.failures import add_note, decode_exception, encode_exception, summarize_exception
from mainspring.codec.fingerprints import INCOMPLETE, fingerprint
from mainspring.codec.type_codec import contain_exit
from mainspring.codec.values import ValueCodec, check_size, size_of, value_codec

__all__ = [
    "INCOMPLETE",
    "CallCodec",
    "ValueCodec",
    "add_note",
    "check_size",
    "contain_exit",
    "decode_exception",
    "encode_call",
    "encode_exception",
    "fingerprint",
    "result_codec",
    "size_of",
    "summarize_exception",
    "value_codec",
]
