"""Walk through the code as data do: which functions, files and packages a call passes, and how deep.

python benchmarks/walk.py            # four walks on tiny inputs
"""

import pathlib
import sys
import tempfile
import threading

import numpy as np

import cavity as cv

NETWORK = "MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 0 2\n" + "4\n1 2 2 1\n" * 3


def walk(call):
    """Functions, files, packages, edges between packages and deepest stack of the library's own code during a call."""
    root = str(pathlib.Path(cv.__file__).resolve().parent) + "/"
    functions, files, packages, edges, stack, deepest = set(), set(), set(), set(), [], 0

    def look(frame, event, _):
        nonlocal deepest
        name = frame.f_code.co_filename
        if not name.startswith(root):
            return
        short = name.removeprefix(root)
        package = short.split("/")[0]
        if event == "call":
            if frame.f_code.co_name != "<module>":
                functions.add((short, frame.f_code.co_qualname))
                files.add(short)
                packages.add(package)
            if stack and stack[-1] != package:
                edges.add((stack[-1], package))
            stack.append(package)
            deepest = max(deepest, len(stack))
        elif event == "return" and stack:
            stack.pop()

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(functions), len(files), len(packages), len(edges), deepest


def simulator(rng, x):
    """A program that only draws."""
    return x + 0.3 * rng.normal(size=x.shape)


def infer_simulator():
    """A simulator in a graph of mixed variables."""
    factor = cv.learned.just_in_time(simulator, 1, 1, draws=512)
    graph = cv.FactorGraph()
    x, z = graph.gaussian(0.0, 1.0, size=3), graph.gaussian(0.0, 4.0, size=3)
    graph.add(factor, x, z)
    graph.add(cv.factors.Probit(), z, data=np.ones(3))
    cv.infer(graph, cv.EP(max_sweeps=4))


def main():
    """Print a line per walk."""
    for name in cv.__all__:
        getattr(cv, name)  # imported now, so that no import is part of a walk
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), np.tile([-1, 1], 6)
    model = cv.GPClassifier(optimize=False)
    path = pathlib.Path(tempfile.mkdtemp()) / "three.uai"
    path.write_text(NETWORK)
    walks = {
        "GPClassifier.fit": lambda: model.fit(X, y),
        "predict_proba": lambda: model.predict_proba(X[:1]),
        "read, infer, marginals": lambda: cv.infer(cv.DiscreteGraph.read(str(path)), cv.EP()).marginals[0],
        "a simulator in a graph": infer_simulator,
    }
    print(f"{'walk':24s} functions files rooms edges deepest")
    for name, call in walks.items():
        print(f"{name:24s} {'{:9d} {:5d} {:5d} {:5d} {:7d}'.format(*walk(call))}", flush=True)


if __name__ == "__main__":
    main()
