"""Users' densities and programs that misbehave at random: runs that were right, refused, told, wrong, crashed or hung.

    python benchmarks/fuzz_programs.py [seconds]

*right*: converged, with the numbers of a quadrature (densities) or of the linear model (programs). *refused*: an error
of the library's own. *told*: any other status than `converged`. *wrong*: converged to other numbers, or a factor that
is known everywhere did not. *crashed*: any other exception. *hung*: more than LIMIT seconds.
"""

import collections
import signal
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import misbehaving

import cavity as cv
from cavity.families import Gaussian, Product
from cavity.learned import SamplerError, every_time, just_in_time
from cavity.learned.sampling import Simulated

OUTCOMES = ("right", "refused", "told", "wrong", "crashed", "hung")
REFUSALS = (SamplerError, cv.factors.FactorError)
#: seconds for one run; compiling the first one of a kind takes most of it
LIMIT = 120
#: standard errors that an average of draws may be off: thousands of them are looked at
ERRORS = 7.0
PAIR = Product((Gaussian(), Gaussian()))


class Hung(Exception):
    """A run took longer than LIMIT."""


def hang(*unused):
    raise Hung


def by_density(moments, variables, rng):
    """One factor under N(0, 1), with a region where it is unknown or impossible."""
    case = misbehaving.random_misbehaviour(rng)
    if variables > 1:
        # A product rule takes jumps to a few digits, and what lies between its points is missed: it says so.
        case = case._replace(high=max(case.high, case.low + 1.0))
        case = case._replace(kind="nothing") if case.kind == "impossible" else case
    found = cv.infer(misbehaving.problem_of(case, moments, variables), cv.EP())
    if not found.converged:
        return ("wrong" if case.is_known else "told"), case
    good = misbehaving.is_right(case, found, 1e-8, getattr(moments, "draws", np.inf))
    return ("right" if good else "wrong"), case


def random_program(rng):
    low = rng.uniform(-2.0, 1.0)
    return misbehaving.ProgramCase(str(rng.choice(list(misbehaving.PROGRAMS))), low, low + rng.uniform(0.5, 2.0))


def by_oracle(rng):
    """One message of x → z = x + N(0, 1/4), x ~ N(m, 1), where z is thought to be N(y, 1)."""
    case, m, y = random_program(rng), rng.normal(), rng.normal()
    simulator = cv.learned.Simulator(case, 1, 1)
    found = Simulated(4096).answer(
        simulator, PAIR, np.array([[m, 1.0, y, 1.0]]), None, jax.random.key(int(rng.integers(1 << 30)))
    )
    if np.isnan(found.log_z[0]):
        return "told", case
    precision, mean = 1.8, (m / 1.25 + y) / 1.8
    off = abs(found.projected[0, 2] / found.projected[0, 3] - mean), abs(found.projected[0, 3] / precision - 1)
    # A region that no draw has met does not matter.
    good = max(off) < ERRORS * np.sqrt(found.spread[0]) and case.name in (*misbehaving.RIGHT, *misbehaving.REGIONAL)
    return ("right" if good else "wrong"), (case, m, off)


class Switched:
    """A program whose behaviour is another one when it is told so, so that one compiled program serves all cases."""

    now = None

    def __call__(self, rng, x):
        return self.now(rng, x)


def by_run(program, factor_of, rng):
    """x ~ N(0, 1), z from the program, 1.0 or so seen with variance 0.5."""
    case, y = random_program(rng), rng.normal()
    program.now = case
    graph = cv.FactorGraph()
    x, z = graph.gaussian(0.0, 1.0), graph.gaussian()
    graph.add(factor_of(), x, z)
    graph.linear(z, variance=0.5, out=y)
    found = cv.infer(graph, cv.EP())
    if not found.converged:
        return "told", case
    off = float(found.marginals[x].mean) - y / 1.75, float(found.marginals[x].variance) * 1.75 / 0.75 - 1
    good = case.name in (*misbehaving.RIGHT, *misbehaving.REGIONAL) and abs(off[0]) < 0.1 and abs(off[1]) < 0.15
    return ("right" if good and np.isfinite(found.log_evidence) else "wrong"), (case, off)


def kinds():
    """What is tried: a name, a function of a generator, and its share of the time."""
    program = Switched()
    always = every_time(program, ["x"], ["z"], draws=2048)
    quick = partial(just_in_time, program, ["x"], ["z"], draws=2048, tol_kl=0.02)
    return (
        ("density, quadrature", partial(by_density, cv.Quadrature(), 1), 0.15),
        ("density of two variables, quadrature", partial(by_density, cv.Quadrature(), 2), 0.15),
        ("density, importance sampling", partial(by_density, cv.Importance(draws=20_000), 1), 0.1),
        ("program, one message", by_oracle, 0.15),
        ("program, every time", partial(by_run, program, lambda: always), 0.15),
        ("program, just in time", partial(by_run, program, quick), 0.3),
    )


def tried(case, rng):
    """The outcome of one case, with what there is to say of it."""
    signal.signal(signal.SIGALRM, hang)
    signal.alarm(LIMIT)
    try:
        return case(rng)
    except REFUSALS as error:
        return "refused", str(error)
    except Hung:
        return "hung", ""
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def main(seconds):
    warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
    print(f"| what | tried | {' | '.join(OUTCOMES)} |\n|---|{'---|' * (1 + len(OUTCOMES))}")
    for name, case, share in kinds():
        counts, began, seed, rows = collections.Counter(), time.perf_counter(), 0, []
        while time.perf_counter() - began < share * seconds:
            outcome, detail = tried(case, np.random.default_rng(seed))
            counts[outcome] += 1
            if outcome in OUTCOMES[3:]:
                rows.append(f"  {outcome}, seed {seed}: {str(detail)[:200]}")
            seed += 1
        print(
            f"| {name} | {seed} | {' | '.join(str(counts[own]) for own in OUTCOMES)} |",
            *rows[:10],
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    with jax.enable_x64(True):
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
