"""The keys of an artifact of Khala's blackboard, and its partition on Kafka, with nothing but the standard library.

    echo '{"org_id":"acme","type":"Draft","id":"01890a5d-ac96-774b-bcce-b302099a8057"}' | python3 board_keys.py 8

For programs that must know what stays in order with what, or that write to Kafka themselves. proto/vectors/board_keys.json has
the cases that every implementation agrees on.
"""

import hashlib
import json
import sys

MIXER, SEED, WORD = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def artifact_key(artifact):
    """Its partition_key, else its correlation_id, else of its own; an empty text counts as absent."""
    given = artifact.get("partition_key") or artifact.get("correlation_id")
    return given or hashlib.sha256((artifact["type"] + artifact["id"]).encode()).hexdigest()[:32]


def record_key(artifact):
    """The key of its record: that of two orgs is never the same."""
    return artifact["org_id"] + ":" + artifact_key(artifact)


def partition_of(key, count):
    """The one of `count` partitions that Kafka's default partitioner in Java chooses."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % count


def murmur2(data):
    """32-bit MurmurHash2 with Kafka's seed, signed as in Java."""
    hashed = SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MIXER & WORD
        hashed = (hashed * MIXER & WORD) ^ ((word ^ word >> 24) * MIXER & WORD)
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MIXER & WORD
    hashed = (hashed ^ hashed >> 13) * MIXER & WORD
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def main():
    counts = [int(text) for text in sys.argv[1:]]
    for line in sys.stdin:
        artifact = json.loads(line)
        key = record_key(artifact)
        partitions = {str(count): partition_of(key, count) for count in counts}
        found = {"key": artifact_key(artifact), "record_key": key, "murmur2": murmur2(key.encode()), "partitions": partitions}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
