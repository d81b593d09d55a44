"""Values as they are stored: encrypted, compressed, or kept outside of the database.

`App(payloads=Encryption(key))` encodes inputs, outputs, messages, events, streams, errors and what else comes from your code. Several
codecs are one by `Chain`.
"""

from mainspring.model.payloads import PayloadCodec
from mainspring.payloads.chain import Chain
from mainspring.payloads.compression import Compression
from mainspring.payloads.encryption import Encryption
from mainspring.payloads.offload import BlobStore, FileStore, Offload

__all__ = ["BlobStore", "Chain", "Compression", "Encryption", "FileStore", "Offload", "PayloadCodec"]
