#!/usr/bin/env python3
"""Held-out nats per byte of an interpolated trigram model over bytes: what counting alone reaches on a text.

p(c | a b) = l3 * n(abc)/n(ab) + (1 - l3) * p(c | b),  p(c | b) = l2 * n(bc)/n(b) + (1 - l2) * p(c),
p(c) = (n(c) + k) / (n + 256 k). The weights l3 and l2 depend on how often the context was seen, one per power of
two (Jelinek and Mercer 1980), and are fitted by EM on the last part of the training text, which is left out of
the counts meanwhile. The held-out text is never looked at before it is scored. Standard library only.
"""

import argparse
import gzip
import json
import math
from collections import Counter

NUM_BUCKETS = 40  # contexts seen up to 2^39 times


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        return f.read()


class Counts:
    """n(c), n(bc) and n(abc), and how often each was a context. Keys are integers: 256 a + b and so on."""

    def __init__(self, text, add_k):
        self.one, self.total, self.add_k = Counter(text), len(text), add_k
        pairs = [256 * a + b for a, b in zip(text, text[1:])]
        self.two = Counter(pairs)
        self.three = Counter(256 * ab + c for ab, c in zip(pairs, text[2:]))
        self.one_context, self.two_context = Counter(text[:-1]), Counter(pairs[:-1])

    def unigram(self, c):
        return (self.one[c] + self.add_k) / (self.total + 256 * self.add_k)

    def samples(self, text):
        """For each byte from the third on: unigram p; bigram bucket and p; trigram bucket and p."""
        for a, b, c in zip(text, text[1:], text[2:]):
            n_b, n_ab = self.one_context[b], self.two_context[256 * a + b]
            yield (
                self.unigram(c),
                n_b.bit_length(),
                self.two[256 * b + c] / n_b if n_b else 0.0,
                n_ab.bit_length(),
                self.three[65536 * a + 256 * b + c] / n_ab if n_ab else 0.0,
            )


def mix(weight, high, low):
    return weight * high + (1 - weight) * low


def fit(buckets, high, low, iterations=30):
    """EM for the weight of `high` against `low`, one per bucket; bucket 0 (context never seen) stays 0.

    One imagined sample for `low` keeps every weight below 1; a bucket without samples takes its neighbour's.
    """
    weights = [0.0]
    for bucket in range(1, NUM_BUCKETS):
        pairs = [(h, l) for k, h, l in zip(buckets, high, low) if k == bucket]
        weight = 0.5 if pairs else weights[-1]
        for _ in range(iterations if pairs else 0):
            weight = sum(weight * h / mix(weight, h, l) for h, l in pairs) / (len(pairs) + 1)
        weights.append(weight)
    return weights


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", required=True, help="training text (.gz is unpacked)")
    parser.add_argument("--valid", help="held-out text; without it the tail of the training text")
    parser.add_argument(
        "--valid-fraction", type=float, default=0.05, help="share of bytes in that tail (default 0.05)"
    )
    parser.add_argument(
        "--tune-fraction", type=float, default=0.05, help="share of training text for the weights"
    )
    parser.add_argument("--add-k", type=float, default=0.5, help="added to each byte's count (default 0.5)")
    a = parser.parse_args()

    train = read(a.train)
    if a.valid:
        valid = read(a.valid)
    else:
        cut = len(train) - int(len(train) * a.valid_fraction)
        train, valid = train[:cut], train[cut:]
    cut = len(train) - int(len(train) * a.tune_fraction)
    if min(cut, len(train) - cut, len(valid)) < 3:
        parser.error("training text, its tuning slice and the held-out text must have at least 3 bytes each")

    p1, bucket2, ml2, bucket3, ml3 = zip(*Counts(train[:cut], a.add_k).samples(train[cut:]))
    l2 = fit(bucket2, ml2, p1)
    p2 = [mix(l2[k], h, l) for k, h, l in zip(bucket2, ml2, p1)]
    l3 = fit(bucket3, ml3, p2)

    nats, num_bytes = [0.0, 0.0, 0.0], 0
    for u, k2, m2, k3, m3 in Counts(train, a.add_k).samples(valid):
        bigram = mix(l2[k2], m2, u)
        for i, p in enumerate((u, bigram, mix(l3[k3], m3, bigram))):
            nats[i] -= math.log(p)
        num_bytes += 1
    print(
        json.dumps(
            {
                "train_bytes": len(train),
                "valid_bytes": len(valid),
                "scored_bytes": num_bytes,
                "unigram": round(nats[0] / num_bytes, 4),
                "bigram": round(nats[1] / num_bytes, 4),
                "trigram": round(nats[2] / num_bytes, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
