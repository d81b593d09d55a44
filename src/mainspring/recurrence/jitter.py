"""A delay that looks random, and is the same each time it is asked for."""

from __future__ import annotations


def jitter_microseconds(seed: str, nominal: int, bound: int) -> int:
    """A number in [0, bound) that depends on nothing but the seed and the nominal time, in seconds since 1970."""
    from hashlib import blake2b  # noqa: PLC0415 - most specs have no jitter, and the module is not a light one

    digest = blake2b(f"{nominal}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * bound >> 64
