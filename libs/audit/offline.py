"""Checks a bundle of Minutebook's record. It needs Python 3.9 and nothing else, and reads nothing but the bundle.

    python verify.py                    # the folder that it lies in, unpacked
    python verify.py bundle.zip         # or the bundle as it came
    python verify.py --key KEY          # and that it was signed by this public key, in hexadecimal

Ends with 0 when everything holds, with 1 and a line for each thing that does not, and with 2 when it is no bundle.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, Tuple

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
SIGNATURES_MAX = 1000
SPILLED = '{"$blob":"'


# Ed25519, RFC 8032. Points are extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.

Point = Tuple[int, int, int, int]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _times(scalar: int, point: Point) -> Point:
    product = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            product = _add(product, point)
        point, scalar = _add(point, point), scalar >> 1
    return product


def _point(data: bytes) -> Point | None:
    """The point that 32 bytes stand for, None where they stand for none."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - x2) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


BASE = _point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")) or (0, 1, 1, 0)


def signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the holder of this public key signed the content."""
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r, s = _point(public), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + content).digest(), "little") % L
    left, right = _times(s, BASE), _add(r, _times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# Merkle trees, RFC 6962.


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def includes(leaf: bytes, number: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof shows that leaf `number` is in the tree of this size and root."""
    if not 0 <= number < size:
        return False
    node, last, found = number, size - 1, hashlib.sha256(b"\x00" + leaf).digest()
    for step in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            found = _node(step, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = _node(found, step)
        node, last = node >> 1, last >> 1
    return last == 0 and found == root


def extends(before: int, old: bytes, size: int, new: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that the tree of `size` begins with the whole tree of size `before`."""
    if before == 0:
        return not proof
    if before >= size:
        return before == size and old == new and not proof
    path = list(proof)
    if before & (before - 1) == 0:
        path.insert(0, old)
    if not path:
        return False
    node, last = before - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    first = second = path[0]
    for step in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            first, second = _node(step, first), _node(step, second)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            second = _node(second, step)
        node, last = node >> 1, last >> 1
    return last == 0 and first == old and second == new


# The bundle.


class Folder:
    """An unpacked bundle."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.names = [name.relative_to(path).as_posix() for name in path.rglob("*") if name.is_file()]

    def open(self, name: str) -> IO[bytes]:
        return (self.path / name).open("rb")


class Archive:
    """A bundle as it came."""

    def __init__(self, path: pathlib.Path) -> None:
        self.zip = zipfile.ZipFile(path)
        self.names = self.zip.namelist()

    def open(self, name: str) -> IO[bytes]:
        return self.zip.open(name)


class Check:
    """One bundle, and everything that is wrong with it."""

    def __init__(self, bundle: Folder | Archive, key: str | None) -> None:
        self.bundle, self.key = bundle, key
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self.sealed: dict[str, tuple[int, str]] = {}

    def run(self) -> None:
        manifest = self.manifest()
        self.files(manifest["files"])
        last = self.seals({key: bytes.fromhex(public) for key, public in manifest["keys"].items()})
        self.inclusion(last)
        facts, tips = self.history()
        later = sum(version > self.sealed.get(stream, (0, ""))[0] for stream, version in tips.items())
        if later:
            self.notes.append(
                f"{later} streams have facts that no seal covers yet: the manifest alone vouches for them"
            )
        self.notes.append(
            f"{facts} facts of {len(tips)} streams, signed by {manifest['public']} (key {manifest['key_id']})"
        )

    def manifest(self) -> dict[str, Any]:
        content, text = self.read(MANIFEST), self.read(SIGNATURE).decode()
        manifest: dict[str, Any] = json.loads(content)
        public, signature = bytes.fromhex(manifest["public"]), bytes.fromhex(text)
        if text != signature.hex() + "\n" or not signed(public, signature, content):
            self.wrong.append("the signature is not that of the manifest")
        if self.key is not None and self.key.lower() != public.hex():
            self.wrong.append(f"it is signed by {public.hex()}, and not by the key that you named")
        return manifest

    def files(self, listed: dict[str, dict[str, Any]]) -> None:
        for name in sorted(set(self.bundle.names) - set(listed) - {MANIFEST, SIGNATURE}):
            self.wrong.append(f"{name} is not in the manifest")
        for name, said in listed.items():
            if name not in self.bundle.names:
                self.wrong.append(f"{name} is missing")
                continue
            digest, length = hashlib.sha256(), 0
            with self.bundle.open(name) as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
                    length += len(block)
            if (digest.hexdigest(), length) != (said["sha256"], said["bytes"]):
                self.wrong.append(f"{name} is not as it was when the manifest was signed")
            if name.startswith("blobs/") and name.rpartition("/")[2] != digest.hexdigest():
                self.wrong.append(f"{name} is not the content of its name")

    def seals(self, keys: dict[str, bytes]) -> dict[str, Any] | None:
        """Each is signed and begins with what the one before it covered. Returns the newest."""
        for key, public in keys.items():
            if hashlib.sha256(public).hexdigest()[:16] != key:
                self.wrong.append(f"key {key} is another one than its name says")
        seals = list(self.lines("seals.jsonl"))
        size, root = 0, b""
        for seal in seals:
            proof = [bytes.fromhex(step) for step in seal["consistency"]]
            if not extends(size, root, seal["size"], bytes.fromhex(seal["root"]), proof):
                self.wrong.append(f"seal {seal['number']} does not begin with what the one before it covered")
            size, root = seal["size"], bytes.fromhex(seal["root"])
        for seal in seals[-SIGNATURES_MAX:]:
            said = {key: value for key, value in seal.items() if key not in ("signature", "consistency")}
            content = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            if seal["key_id"] not in keys:
                self.notes.append(
                    f"seal {seal['number']} is signed by key {seal['key_id']}, which is not in the bundle"
                )
            elif not signed(keys[seal["key_id"]], bytes.fromhex(seal["signature"]), content):
                self.wrong.append(f"the signature of seal {seal['number']} is not that of its content")
        if len(seals) > SIGNATURES_MAX:
            self.notes.append(f"of {len(seals)} seals the signatures of the newest {SIGNATURES_MAX} were checked")
        return seals[-1] if seals else None

    def inclusion(self, last: dict[str, Any] | None) -> None:
        """The tip of each stream that was sealed is in the tree of the newest seal."""
        for leaf in self.lines("inclusion.jsonl"):
            stream, version = leaf["stream_id"], leaf["version"]
            content = bytes.fromhex(stream.replace("-", "") + f"{version:016x}" + leaf["digest"])
            proof = [bytes.fromhex(step) for step in leaf["proof"]]
            if last is None or not includes(content, leaf["number"], last["size"], proof, bytes.fromhex(last["root"])):
                self.wrong.append(f"the tip of stream {stream} is not in the newest seal")
            self.sealed[stream] = (version, leaf["digest"])

    def history(self) -> tuple[int, dict[str, int]]:
        """Each stream is whole from its first fact on, each fact chained to the one before, and as it was sealed."""
        facts, tips = 0, {}
        stream, version, digest = "", 0, b""
        for row in self.lines("history.jsonl"):
            facts += 1
            if row["stream_id"] != stream:
                stream, version, digest = row["stream_id"], 0, b""
                if stream in tips:
                    self.wrong.append(f"stream {stream} stands in two places")
            version += 1
            head = f'["{stream}",{row["version"]},"{row["category"]}","{row["type"]}",{row["event_version"]}]'
            digest = hashlib.sha256(digest + (head + row["payload"] + row["metadata"]).encode()).digest()
            if (row["version"], row["digest"]) != (version, digest.hex()):
                self.wrong.append(f"the chain of stream {stream} breaks at version {row['version']}")
                version, digest = row["version"], bytes.fromhex(row["digest"])
            if self.sealed.get(stream, (0, ""))[0] == version and self.sealed[stream][1] != digest.hex():
                self.wrong.append(f"version {version} of stream {stream} is not the fact that was sealed")
            if row["payload"].startswith(SPILLED):
                blob = f"blobs/{row['tenant_group']}/{row['payload'][len(SPILLED) : len(SPILLED) + 64]}"
                if blob not in self.bundle.names:
                    self.wrong.append(f"the payload of version {version} of stream {stream}, {blob}, is missing")
            tips[stream] = version
        for stream, (version, _) in self.sealed.items():
            if tips.get(stream, 0) < version:
                self.wrong.append(f"stream {stream} was sealed at version {version}, and ends before it")
        return facts, tips

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        with self.bundle.open(name) as stream:
            for line in stream:
                yield json.loads(line)

    def read(self, name: str) -> bytes:
        with self.bundle.open(name) as stream:
            return stream.read()


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks a bundle of Minutebook's record.")
    parser.add_argument("bundle", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    parser.add_argument("--key", help="the public key that must have signed it, in hexadecimal")
    options = parser.parse_args()
    try:
        bundle: Folder | Archive = Folder(options.bundle) if options.bundle.is_dir() else Archive(options.bundle)
    except (OSError, zipfile.BadZipFile) as error:
        print(f"no bundle: {error}")
        return 2
    check = Check(bundle, options.key)
    try:
        check.run()
    except Exception as error:  # whatever was done to it
        check.wrong.append(f"it cannot be read to its end: {type(error).__name__}: {error}")
    for line in check.wrong:
        print(f"WRONG: {line}")
    for line in check.notes:
        print(line)
    print("This bundle does NOT hold." if check.wrong else "Everything holds.")
    return 1 if check.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
