"""A file appears whole, under the name that a link leads to, with the mode it had; nothing but files is replaced."""

import os
import stat

import pytest

import cavity as cv
from cavity._storage import StorageError, save
from cavity._storage.writing import whole_file, write_whole


def test_links_are_followed_and_stay(tmp_path):
    target, near, far = tmp_path / "target", tmp_path / "near", tmp_path / "far"
    target.write_bytes(b"old")
    near.symlink_to("target")
    far.symlink_to(near)
    write_whole(far, "néw")
    assert near.is_symlink() and far.is_symlink()
    assert target.read_text(encoding="utf-8") == "néw"
    target.unlink()
    write_whole(far, b"again")  # what a link leads to need not be there
    assert far.is_symlink() and not target.is_symlink() and target.read_bytes() == b"again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "near", "target"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode_and_nobody_else_reads_it_on_the_way(tmp_path, mode):
    path = tmp_path / "private"
    path.touch()
    path.chmod(mode)
    with whole_file(path) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_bytes() == b"new"


def folder(path):
    path.mkdir()
    return path


def pipe(path):
    os.mkfifo(path)
    return path


def loop(path):
    path.symlink_to(path)
    return path


def device(path):
    path.symlink_to("/dev/null")
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [(folder, "it is a folder"), (pipe, "not a regular file"), (device, "not a regular file"), (loop, "symbolic link")],
)
def test_what_is_no_file_is_refused_and_stays(tmp_path, make, words):
    path = make(tmp_path / "name.uai")
    before = os.lstat(path)
    with pytest.raises(StorageError, match=rf"name\.uai cannot be written: .*{words}"):
        save(path, "kind", {}, {})
    with pytest.raises(OSError, match=rf"{words}.*name\.uai"):
        cv.DiscreteGraph([2]).write(path)
    assert os.lstat(path).st_ino == before.st_ino and [own.name for own in tmp_path.iterdir()] == ["name.uai"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_what_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    full = OSError(28, "No space left on device")
    with pytest.raises(OSError, match=r"No space left.*file"), whole_file(path):
        raise full
    assert path.read_bytes() == b"old" and [own.name for own in tmp_path.iterdir()] == ["file"]
