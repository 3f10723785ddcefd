"""Files come back exactly; everything else is one sentence, never another exception and never code."""

import io
import json
import math
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from cavity import _storage
from cavity._storage import StorageError, npz
from cavity._storage.npz import HEADER

HEAD = {"kernel": {"class": "RBF", "length_scale": 0.1}, "n": 3, "list": [1e-300, 0.1 + 0.2, True, None, "é"]}
ARRAYS = {
    "weights": np.array([[0.1, -1e-308, math.pi], [np.inf, np.nan, 5e-324]]),
    "file": np.arange(3),
    "labels": np.array(["no", "maybe"]),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "number": np.array(2.5),
    "empty": np.zeros((0, 4)),
    "flags": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cavity"


def assert_same(loaded, kind="test", header=HEAD, arrays=ARRAYS):
    assert loaded[0] == kind and loaded[1] == header and list(loaded[2]) == list(arrays)
    for name, array in arrays.items():
        again = loaded[2][name]
        assert again.dtype == array.dtype and again.shape == array.shape and again.tobytes() == array.tobytes()


def write_npz(path, header, **members):
    """A file with any header, not written by `save`."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        np.savez(file, **{HEADER: np.frombuffer(text, np.uint8)}, **members)


def write_foreign(path):
    with open(path, "wb") as file:
        np.savez(file, a=np.ones(2))


def valid(**changes):
    return {"format": "cavity", "version": 1, "kind": "k", "library": "0", "arrays": [], "header": {}, **changes}


def test_everything_comes_back_exactly_and_writable(path):
    _storage.save(path, "test", HEAD, ARRAYS)
    loaded = _storage.load(path)
    assert_same(loaded)
    loaded[2]["weights"][0, 0] = 1.0
    assert [p.name for p in path.parent.iterdir()] == ["model.cavity"]


def test_files_are_plain_npz_and_depend_on_contents_only(path):
    _storage.save(path, "test", HEAD, ARRAYS)
    first = path.read_bytes()
    _storage.save(str(path), "test", HEAD, ARRAYS)
    assert path.read_bytes() == first
    with np.load(path, allow_pickle=False) as plain:
        np.testing.assert_array_equal(plain["weights"], ARRAYS["weights"])


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    _storage.save(path, "test", HEAD, ARRAYS)

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(StorageError, match="No space left"):
        _storage.save(path, "other", {}, {"a": np.ones(3)})
    monkeypatch.undo()
    assert_same(_storage.load(path))
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("k", {"x": math.inf}, {}), "finite"),
        (("k", {"x": np.ones(2)}, {}), "JSON"),
        (("k", {"x": (1, 2)}, {}), "lists, not tuples"),
        (("k", {1: "x"}, {}), "text as keys"),
        (("", {}, {}), "kind"),
        (("k", {}, {"a": np.array([object()])}), r"arrays\['a'\].*object"),
        (("k", {}, {"a": np.zeros(2, [("x", float)])}), r"arrays\['a'\]"),
        (("k", {}, {HEADER: np.ones(2)}), "header's"),
        (("k", {}, {3: np.ones(2)}), "named by text"),
    ],
)
def test_what_cannot_be_saved_is_named(path, arguments, word):
    with pytest.raises(StorageError, match=word):
        _storage.save(path, *arguments)
    assert not path.exists()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StorageError, match="folder does not exist"):
        _storage.save(tmp_path / "no" / "file", "k", {}, {})


@pytest.mark.parametrize(
    ("write", "word"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "cannot be read"),
        (lambda path: path.write_bytes(b""), "not a file written by cavity"),
        (lambda path: path.write_bytes(b"text" * 99), "not a file written by cavity"),
        (lambda path: write_foreign(path), "no header"),
        (lambda path: write_npz(path, b"{not json"), "header is not JSON"),
        (lambda path: write_npz(path, b'{"a": NaN}'), "header is not JSON"),
        (lambda path: write_npz(path, b"[" * 100000), "header is not JSON"),
        (lambda path: write_npz(path, b'{"a": 1e999}'), "header is not JSON"),
        (lambda path: write_npz(path, b"\xff\xfe"), "header is not JSON"),
        (lambda path: write_npz(path, [1, 2]), "not written by cavity"),
        (lambda path: write_npz(path, valid(format="other")), "not written by cavity"),
        (
            lambda path: write_npz(path, valid(version=2, library="9.1")),
            "version 2, written by cavity '9.1'.*version 1",
        ),
        (lambda path: write_npz(path, valid(header=None)), "lacks kind, header or arrays"),
        (lambda path: write_npz(path, valid(arrays=["a"])), "differ in 'a'"),
        (lambda path: write_npz(path, valid(), b=np.ones(2)), "differ in 'b'"),
        (lambda path: write_npz(path, valid(arrays=["a"]), a=np.array([{}])), "dtype object"),
    ],
)
def test_foreign_files_are_named(path, write, word):
    write(path)
    with pytest.raises(StorageError, match=word) as caught:
        _storage.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


class Bomb:
    """What a pickle would run."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def member(shape, data=b"", descr="<f8"):
    """The bytes of an array member with any shape in its header."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (member((10**14,)), "takes 800000000000000 bytes, 0 are there"),
        (member((2**40, 2**40)), "are there"),
        (member((2**70, 0)), "damaged"),
        (member((-1, -1), bytes(8)), "damaged"),
        (member((3,), bytes(8)), "takes 24 bytes, 8 are there"),
        (member((10**15,), descr="<U0"), "is refused"),
        (member((1,), pickle.dumps(Bomb()), descr="|O"), "dtype object"),
        (pickle.dumps(Bomb()), "not an array"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')" + b"\n", "not an array"),
        (b"", "not an array"),
        (member((1,), (0x110000).to_bytes(4, "little"), "<U1"), "bits that are no text"),
        (member((2,), b"\x00\x00\x00A\x00\x00\xd8\x00", ">U1"), "bits that are no text"),
        (member((2,), b"\x01\x02", "|b1"), "bits that are no booleans"),
    ],
)
def test_hostile_members_are_refused_before_memory_is_used(path, content, word):
    write_npz(path, valid(arrays=["a"]))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(StorageError, match=word):
        _storage.load(path)


def test_declared_sizes_are_checked(path):
    _storage.save(path, "k", {}, {"a": np.zeros(200_000)})
    assert path.stat().st_size < 5000
    with pytest.raises(StorageError, match="max_bytes=100000"):
        _storage.load(path, max_bytes=100_000)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place = content.rindex(b"a.npy") - 46  # the entry of the archive's directory, whose bytes 24 to 28 are the size
        size = archive.getinfo("a.npy").file_size
    assert content[place + 24 : place + 28] == size.to_bytes(4, "little")
    content[place + 24 : place + 28] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(StorageError, match="declares more bytes than it can hold"):
        _storage.load(path)


def test_a_member_that_unpacks_to_more_than_it_declares_is_read_to_what_it_declares(path):
    _storage.save(path, "k", {}, {"a": np.zeros(2**23)})
    content = bytearray(path.read_bytes())
    place = content.rindex(b"a.npy") - 46
    content[place + 24 : place + 28] = (1000).to_bytes(4, "little")
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(StorageError):
        _storage.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22  # 64 MiB are in it


def test_a_file_may_unpack_to_a_multiple_of_its_size(path, monkeypatch):
    _storage.save(path, "k", {}, {"a": np.zeros(200_000)})
    monkeypatch.setattr(npz, "SMALL", 2**16)
    with pytest.raises(StorageError, match=r"takes 16[0-9]+ bytes when unpacked, above the limit max_bytes="):
        _storage.load(path)
    assert len(_storage.load(path, max_bytes=2**21)[2]["a"]) == 200_000
    # What is that large is written so that it can be read.
    _storage.save(path, "k", {"text": "a" * 10_000}, {"a": np.zeros(200_000)})
    assert path.stat().st_size > 1_600_000 and len(_storage.load(path)[2]["a"]) == 200_000


def test_headers_are_bounded_by_what_their_json_becomes_and_in_depth(path, monkeypatch):
    monkeypatch.setattr(npz, "SMALL", 2**20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(valid(header={"a": [[]] * 30_000})).encode()
        archive.writestr(f"{HEADER}.npy", member((len(text),), text, "|u1"))
    with pytest.raises(StorageError, match="max_bytes"):
        _storage.load(path)
    deep = {}
    for _ in range(npz.MOST_NESTED - 1):
        deep = {"in": deep}
    _storage.save(path, "k", deep, {})
    assert _storage.load(path)[1] == deep
    with pytest.raises(StorageError, match="nested more than 200 deep"):
        _storage.save(path, "k", {"in": deep}, {})
    write_npz(path, valid(header={"in": deep}))
    with pytest.raises(StorageError, match="nested more than 200 deep"):
        _storage.load(path)


def test_damage_gives_the_content_or_a_storage_error(path):
    _storage.save(path, "test", HEAD, ARRAYS)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [whole[:length] for length in range(0, len(whole), 11)]
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(changed))
    for _ in range(200):
        changed = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(2, 6)):
            changed[place] = rng.integers(256)
        damaged.append(bytes(changed))
    refused = []
    for content in damaged:
        path.write_bytes(content)
        try:
            assert_same(_storage.load(path))
        except StorageError as error:
            refused.append(str(error))
    assert len(refused) > len(damaged) / 2
    assert not any("\n" in sentence for sentence in refused)
