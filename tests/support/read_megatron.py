#!/usr/bin/env python3
"""Prints a Megatron indexed dataset, a document per line as ids. Usage: read_megatron.py PREFIX

Written from Megatron-LM's megatron/core/datasets/indexed_dataset.py (version 1) and independent of our own reader, as a check on what
we write: lengths, byte offsets and document entries are each used as Megatron uses them.
"""
import struct
import sys

LETTERS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}  # of the types that hold ids


def main(prefix):
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    with open(prefix + ".bin", "rb") as file:
        ids = file.read()
    assert index[:9] == b"MMIDIDX\x00\x00", "magic"
    version, code, num_sequences, num_entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1, "version"
    at = 9 + 8 + 1 + 8 + 8
    lengths = struct.unpack_from(f"<{num_sequences}i", index, at)
    at += 4 * num_sequences
    offsets = struct.unpack_from(f"<{num_sequences}q", index, at)
    at += 8 * num_sequences
    documents = struct.unpack_from(f"<{num_entries}q", index, at)
    assert at + 8 * num_entries == len(index), "bytes left over"
    assert documents[-1] == num_sequences, "the last document's end"
    for first, end in zip(documents, documents[1:]):
        found = []
        for sequence in range(first, end):
            found += struct.unpack_from(f"<{lengths[sequence]}{LETTERS[code]}", ids, offsets[sequence])
        print(*found)


if __name__ == "__main__":
    main(sys.argv[1])
