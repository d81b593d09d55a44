"""Payload codecs: encrypt, compress or offload the values that are stored.

`App(payloads=Encryption(key))` encodes inputs, outputs, messages, events, streams, errors and all other values of your code.
`Chain` combines several codecs.
"""

from mainspring._exports import say_from
from mainspring.model.payloads import PayloadCodec
from mainspring.payloads.chain import Chain
from mainspring.payloads.compression import Compression
from mainspring.payloads.encryption import Encryption
from mainspring.payloads.offload import BlobStore, DeletingBlobStore, FileStore, Offload

__all__ = [
    "BlobStore",
    "Chain",
    "Compression",
    "DeletingBlobStore",
    "Encryption",
    "FileStore",
    "Offload",
    "PayloadCodec",
]

say_from(__name__, *(globals()[name] for name in __all__))
