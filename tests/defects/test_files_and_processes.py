"""Files that unpack to more than a machine has, and processes that are copies of another.

Each test states the right answer of a known defect, fails today, and whoever mends the defect takes the mark off.
"""

import gzip
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import cavity as cv
from cavity import _storage


def last_words(code, *arguments, seconds):
    """The last line that a process prints, its errors with it; a process that does not end in time is a failure."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"no answer in {seconds} s") from None
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    assert lines, f"no word, exit status {done.returncode}"
    return lines[-1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory of a process")
def test_a_packed_network_is_read_in_proportion_to_its_text_or_refused(tmp_path):
    variables, factors = 20, 48
    path = tmp_path / "small.uai.gz"
    table = f"{2**variables}\n".encode() + b".5 " * 2**variables + b"\n"
    scope = f"{variables} {' '.join(map(str, range(variables)))}\n"
    head = f"MARKOV\n{variables}\n{'2 ' * variables}\n{factors}\n{scope * factors}"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head.encode())
        for _ in range(factors):
            file.write(table)
    code = """
        import resource, sys
        import cavity as cv
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, resource.RLIM_INFINITY))
        try:
            cv.DiscreteGraph.read(sys.argv[1])
            print("read")
        except ValueError as error:
            print("refused:", str(error)[:200])
        except MemoryError:
            print("out of memory")
    """
    said = last_words(code, path, seconds=100)
    assert said == "read" or (said.startswith("refused:") and path.name in said), said


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A saved regressor with a kernel of two terms."""
    X = np.linspace(0, 1, 6)[:, None]
    kernel = cv.kernels.RBF(1.0) + cv.kernels.White(0.1)
    path = tmp_path_factory.mktemp("model") / "model.npz"
    cv.GPRegressor(kernel=kernel, noise=0.1, optimize=False).fit(X, X[:, 0]).save(path)
    return path


def test_a_model_file_with_a_kernel_nested_too_deep_is_refused_in_a_sentence(model_file, tmp_path):
    kind, header, arrays = _storage.load(model_file)
    (model,) = header["models"]
    term = model["kernel"]["left"]
    nested = term
    for _ in range(900):
        nested = {"class": "Sum", "left": nested, "right": term}
    path = tmp_path / "deep.npz"
    text = {"format": "cavity", "version": 1, "kind": kind, "library": cv.__version__, "arrays": list(arrays)}
    model["kernel"] = nested
    header["params"]["kernel"] = {"kernel": nested}
    text = json.dumps({**text, "header": header}).encode()
    np.savez(path, **{"__cavity__": np.frombuffer(text, np.uint8), **arrays})
    with pytest.raises(ValueError, match=r"deep\.npz"):
        cv.load(path)


def test_how_much_a_model_file_may_unpack_to_can_be_lowered(model_file):
    with pytest.raises(ValueError, match="max_bytes"):
        cv.load(model_file, max_bytes=100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_fits_or_is_told_at_once_what_to_do():
    """A second fit of the same shape takes milliseconds; six seconds are ample for it, or for a refusal."""
    code = """
        import os, signal, time
        import numpy as np
        import cavity as cv
        X = np.linspace(0.0, 1.0, 6)[:, None]
        def fit():
            return cv.GPRegressor(kernel=cv.kernels.RBF(1.0), noise=0.1, optimize=False).fit(X, X[:, 0]).log_evidence_
        before = fit()
        child = os.fork()
        if child == 0:
            try:
                print("the same" if fit() == before else "another number", flush=True)
            except BaseException as error:
                print("refused:", error, flush=True)
            os._exit(0)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print("the child did not answer", flush=True)
        os._exit(0)
    """
    said = last_words(code, seconds=60)
    assert said == "the same" or (said.startswith("refused:") and "fork" in said), said
