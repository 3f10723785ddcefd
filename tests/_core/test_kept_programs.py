"""Compiled programs in files: whole or not at all, trusted or not at all, and never the reason for an error."""

import errno
import json
import os
import resource
import stat
import subprocess
import sys
import textwrap
import time
import warnings

import jax
import numpy as np
import pytest

from cavity._core import kept_programs
from cavity._core.kept_programs import ProgramFolder, kept_files, open_folder

PAYLOAD = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path):
    """A folder with one program in it."""
    found = ProgramFolder(tmp_path)
    found.put("jit_f-0123", PAYLOAD)
    return found


def the_file(folder):
    (found,) = folder.path.glob("*.program")
    return found


# ---------------------------------------------------------------- one file


def test_what_was_kept_is_found_by_its_key_alone(folder):
    assert folder.get("jit_f-0123") == PAYLOAD
    assert folder.get("jit_f-0124") is None
    assert ProgramFolder(folder.root).get("jit_f-0123") == PAYLOAD


def test_nobody_else_can_read_or_write_what_is_kept(folder):
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.path, the_file(folder))] == [0o700, 0o600]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, len(PAYLOAD) // 2, len(PAYLOAD) + 31])
def test_a_truncated_file_is_deleted_and_written_anew(folder, length):
    path = the_file(folder)
    path.write_bytes(path.read_bytes()[:length])
    assert folder.get("jit_f-0123") is None and not path.exists()
    folder.put("jit_f-0123", PAYLOAD)
    assert folder.get("jit_f-0123") == PAYLOAD


def test_every_single_damaged_byte_is_noticed(folder):
    path, rng = the_file(folder), np.random.default_rng(0)
    whole = path.read_bytes()
    for place in [0, 31, 32, len(whole) - 1, *rng.integers(len(whole), size=40)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        assert folder.get("jit_f-0123") is None
    path.write_bytes(rng.bytes(5000))
    assert folder.get("jit_f-0123") is None


def test_a_program_under_the_name_of_another_is_refused(folder):
    the_file(folder).rename(folder.path / "jit_g-4567.program")
    assert folder.get("jit_g-4567") is None


def test_what_is_no_file_of_this_users_alone_is_not_read(folder, tmp_path, monkeypatch):
    path = the_file(folder)
    path.chmod(0o620)
    assert folder.get("jit_f-0123") is None and not path.exists()
    folder.put("jit_f-0123", PAYLOAD)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert folder.get("jit_f-0123") is None
    elsewhere.replace(path)
    assert folder.get("jit_f-0123") == PAYLOAD
    os.chown(path, 0, -1) if os.geteuid() else os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert folder.get("jit_f-0123") is None


def test_a_folder_in_the_place_of_a_file_is_passed_over(folder):
    path = the_file(folder)
    path.unlink()
    path.mkdir()
    assert folder.get("jit_f-0123") is None
    folder.put("jit_f-0123", PAYLOAD)
    assert list(folder.path.iterdir()) == [path]


# ---------------------------------------------------------------- disks that are full or may not be written to


def refuse(number):
    def refused(*arguments, **options):
        raise OSError(number, os.strerror(number))

    return refused


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_only_be_read_serves_all_the_same(folder, monkeypatch, number):
    for name in ("utime", "unlink", "replace", "mkdir"):
        monkeypatch.setattr(os, name, refuse(number))
    monkeypatch.setattr(kept_programs.tempfile, "mkstemp", refuse(number))
    again = ProgramFolder(folder.root)
    again.put("jit_g-4567", PAYLOAD)
    assert not again.writable
    assert again.get("jit_g-4567") is None and again.get("jit_f-0123") == PAYLOAD


def test_a_full_disk_leaves_no_part_of_a_program(folder):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        folder.put("jit_g-4567", PAYLOAD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not folder.writable and folder.get("jit_g-4567") is None
    assert [path.name for path in folder.path.iterdir()] == ["jit_f-0123.program"]


# ---------------------------------------------------------------- the bound on the size


def test_what_was_used_least_recently_is_deleted_first(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "LARGEST", 10 * 1032)
    monkeypatch.setattr(kept_programs, "BETWEEN_LOOKS", 1032)
    folder, now = ProgramFolder(tmp_path), time.time()
    for number in range(10):
        folder.put(f"f-{number}", bytes(1000))
        os.utime(folder.path / f"f-{number}.program", (now - 100 + number,) * 2)
    assert folder.get("f-0") is not None  # used just now
    folder.put("f-10", bytes(1000))
    folder.put("f-11", bytes(1000))
    folder.put("f-12", bytes(1000))
    left = {file.path.stem for file in kept_files(tmp_path)}
    assert sum(file.size for file in kept_files(tmp_path)) <= 10 * 1032
    assert {"f-0", "f-9", "f-10", "f-11", "f-12"} <= left and not left & {"f-1", "f-2", "f-3"}


def test_other_versions_and_parts_are_deleted_when_nobody_uses_them(folder):
    now, old = time.time(), folder.root / "cavity-0.0.1-jax-0.1-jaxlib-0.1-x86_64-00"
    recent = folder.root / "cavity-0.0.2-jax-0.1-jaxlib-0.1-x86_64-00"
    for other, age in ((old, 31), (recent, 3)):
        other.mkdir()
        (other / "f-1.program").write_bytes(b"x")
        os.utime(other / "f-1.program", (now - age * 86400,) * 2)
    own = the_file(folder)
    os.utime(own, (now - 90 * 86400,) * 2)
    parts = [folder.path / "f.1.partial", folder.path / "f.2.partial"]
    for part, age in zip(parts, (7200, 60), strict=True):
        part.write_bytes(b"x")
        os.utime(part, (now - age,) * 2)
    strangers = [folder.root / "notes.txt", folder.path / "notes.txt", folder.root / "mine" / "f.program"]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not ours", encoding="utf-8")
    ProgramFolder(folder.root).put("f-2", PAYLOAD)
    assert not old.exists() and recent.exists() and own.exists()
    assert [part.exists() for part in parts] == [False, True]
    kept_programs.clear(folder.root)
    assert all(path.exists() for path in strangers) and not recent.exists()
    assert list(kept_files(folder.root)) == []


def test_a_thousand_programs_cost_milliseconds_to_look_through(tmp_path):
    folder = ProgramFolder(tmp_path)
    for number in range(1000):
        folder.put(f"f-{number}", b"x")
    began = time.perf_counter()
    ProgramFolder(tmp_path).put("f-1000", b"x")
    assert time.perf_counter() - began < 0.5


# ---------------------------------------------------------------- the folder


def opened(monkeypatch, root):
    monkeypatch.setenv("CAVITY_CACHE", str(root))
    return open_folder()


def test_the_folder_is_made_for_this_user_alone(monkeypatch, tmp_path):
    before = os.umask(0o002)
    try:
        opened(monkeypatch, tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["group", "everybody", "link", "owner", "file"])
def test_a_folder_that_others_can_write_to_is_refused(monkeypatch, tmp_path, kind):
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    if kind in ("group", "everybody"):
        root.chmod(0o770 if kind == "group" else 0o707)
    elif kind == "link":
        root.rename(tmp_path / "other")
        root.symlink_to(tmp_path / "other")
    elif kind == "owner":
        if os.geteuid() == 0:
            os.chown(root, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        root.rmdir()
        root.write_text("", encoding="utf-8")
        assert opened(monkeypatch, root) is None  # cannot be made: nothing is kept, nothing is said
        return
    with pytest.warns(UserWarning, match="compiled programs are not kept in"):
        assert opened(monkeypatch, root) is None


def test_where_programs_are_kept(monkeypatch, tmp_path):
    assert opened(monkeypatch, "off") is None
    assert opened(monkeypatch, tmp_path / "x").root == tmp_path / "x"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "y"))
    monkeypatch.setenv("HOME", str(tmp_path / "y"))
    assert tmp_path / "y" in opened(monkeypatch, "").root.parents
    name = kept_programs.version_and_machine()
    assert name == kept_programs.version_and_machine()
    assert jax.__version__ in name and kept_programs.__version__ in name


def test_another_processor_has_a_folder_of_its_own(monkeypatch):
    here = kept_programs.version_and_machine()
    monkeypatch.setattr(kept_programs.platform, "processor", lambda: "another")
    assert kept_programs.version_and_machine() != here


# ---------------------------------------------------------------- processes

COUNTED = """
    import json, os, sys, warnings
    from pathlib import Path
    warnings.simplefilter("error")
    import jax, jax.numpy as jnp, numpy as np
    import cavity as cv
    found = {"hits": 0}
    def listen(event, **unused):
        found["hits"] += event == "/jax/compilation_cache/cache_hits"
    jax.monitoring.register_event_listener(listen)
    def ask():
        jax.clear_caches()
        found["hits"] = 0
        matrices = [cv.kernels.Matern(0.7)(np.linspace(0.0, 1.0, n)[:, None]) for n in range(3, 7)]
        return [[np.asarray(own).tobytes().hex() for own in matrices], found["hits"]]
    def files(folder):
        return sorted(path.name for path in Path(folder).rglob("*") if path.is_file())
    home = os.environ.get("CAVITY_CACHE", "")
"""


def started(code, root, **environment):
    """A process that computes, with a folder of its own and no other."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "JAX_PERS"))}
    env |= {"CAVITY_CACHE": str(root), "PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, "-c", textwrap.dedent(COUNTED) + textwrap.dedent(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def printed(process):
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-2000:]
    return json.loads(output.splitlines()[-1])


def test_programs_are_kept_and_damaged_ones_are_made_anew_without_a_word(tmp_path):
    code = """
    first = ask()
    kept = files(home)
    again = ask()
    for number, path in enumerate(sorted(Path(home).rglob("*.program"))):
        path.write_bytes((path.read_bytes()[:-20], b"", os.urandom(3000), b"x" * 100)[number % 4])
    damaged, repaired = ask(), ask()
    print(json.dumps([first, again, damaged, repaired, kept, files(home), dict(jax.config.values)], default=repr))
    """
    first, again, damaged, repaired, kept, files, settings = printed(started(code, tmp_path))
    assert again[1] == first[1] + len(kept) > 2  # one program may be asked for twice, by two functions
    assert damaged == first and repaired == again and files == kept
    assert again[0] == first[0]
    assert settings["jax_compilation_cache_dir"] is None
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 1.0
    elsewhere = printed(started("print(json.dumps(ask()))", tmp_path))
    assert elsewhere == again  # the other process found them all


def test_two_processes_at_once_do_not_disturb_each_other(tmp_path):
    both = [started("print(json.dumps(ask()))", tmp_path) for _ in range(2)]
    one, other = map(printed, both)
    assert one[0] == other[0]
    again, files = printed(started("print(json.dumps([ask(), files(home)]))", tmp_path))
    assert again[0] == one[0] and again[1] >= len(files) > 2


def test_nothing_is_kept_where_nothing_is_to_be_kept(tmp_path):
    code = "print(json.dumps([ask()[1], ask()[1], files(os.environ['HOME'])]))"
    assert printed(started(code, "off", HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))) == [0, 0, []]


def test_a_full_disk_costs_compilations_alone(tmp_path):
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    print(json.dumps([ask()[1], ask()[1], files(home)]))
    """
    assert printed(started(code, tmp_path)) == [0, 0, []]


def test_a_folder_of_others_costs_one_warning(tmp_path):
    tmp_path.chmod(0o777)
    code = """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(json.dumps([ask()[1], ask()[1], files(home), [str(own.message) for own in caught]]))
    """
    *nothing, (words,) = printed(started(code, tmp_path))
    assert nothing == [0, 0, []]
    assert words.startswith("compiled programs are not kept in")


def test_the_users_own_programs_and_settings_are_left_alone(tmp_path):
    """Their programs are not kept; a folder they name, before or at any later time, is used for all programs."""
    ours, theirs, later = tmp_path / "ours", tmp_path / "theirs", tmp_path / "later"
    code = """
    ask()
    kept = files(home)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    @jax.jit
    def own(x):
        return jnp.sin(x) @ x
    own(np.ones(3))
    without = files(home) == kept
    jax.config.update("jax_compilation_cache_dir", os.environ["LATER"])
    jax.clear_caches()
    own(np.ones(3))
    hits = ask()[1]
    jax.clear_caches()
    own(np.ones(3))
    print(json.dumps([without, hits, found["hits"], files(home) == kept, files(os.environ["LATER"])]))
    """
    without, hits, own_hits, untouched, files = printed(started(code, ours, LATER=str(later)))
    assert without and untouched and hits < len(files) and own_hits > 0
    assert any(name.startswith("jit_own-") for name in files)
    assert not any(name.endswith(".program") for name in files)
    environment = {"JAX_COMPILATION_CACHE_DIR": str(theirs), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    hits, files = printed(started("ask(); print(json.dumps([ask()[1], files(home)]))", tmp_path / "new", **environment))
    assert hits > 2 and files == []


def test_importing_the_library_touches_no_folder(tmp_path):
    code = """
    from cavity import estimators, factor_graph, models, stepping
    print(json.dumps(files(os.environ["HOME"]) + os.listdir(os.environ["HOME"])))
    """
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    with warnings.catch_warnings():
        assert printed(started(code, "", **home)) == []
