"""Values and calls to JSON and back by their annotations; exceptions to records and back."""

from mainspring.codec.calls import CallCodec, encode_call
from mainspring.codec.failures import decode_exception, encode_exception, in_a_line
from mainspring.codec.values import ValueCodec, check_size, size_of, value_codec

__all__ = [
    "CallCodec",
    "ValueCodec",
    "check_size",
    "decode_exception",
    "encode_call",
    "encode_exception",
    "in_a_line",
    "size_of",
    "value_codec",
]
