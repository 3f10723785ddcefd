"""A factor that is only a program, in a graph of many ponds: learning its messages against sampling each of them.

No document has this figure. It answers what learning is for: three inputs and two outputs with noise inside leave
nothing to quadrature, and every message that is sampled costs thousands of runs of the program.
"""

import time
from typing import Any

import numpy as np

import cavity
from cavity.learned import every_time, just_in_time
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned.predator_prey import INPUTS, OUTPUTS, marginals, ponds, reference, step

JIT, EVERY, MONTE_CARLO = "just in time", "every message sampled", "Monte Carlo"
#: counts of every pond
TIMES = 3
#: sampled messages jitter, so that runs of them end after so many sweeps; learned ones converge
SWEEPS, TOLERANCE = 8, 1e-3


def draws_of(config: Config) -> int:
    return config.pick(8192, 4096, 1024)


def seen(config: Config, number: int) -> np.ndarray:
    """The counts of one problem."""
    return ponds(1000 * config.seed + number, config.pick(40, 10, 2), TIMES).seen


def units(config: Config) -> list[Unit]:
    problems = config.pick(4, 2, 1)
    single = [
        make_unit(config, 1 + k, f"{name}, problem {k + 1}", problem=k)
        for k in range(min(problems, 2))
        for name in (EVERY, MONTE_CARLO)
    ]
    return [make_unit(config, 0, JIT, problems=problems), *single]


def run_unit(unit: Unit, config: Config) -> dict:
    """All problems in sequence with one operator; or one problem by sampling, or by particles."""
    if unit.name == JIT:
        return learned(unit.options["problems"], config)
    counts = seen(config, unit.options["problem"])
    began = time.perf_counter()
    if unit.name.startswith(MONTE_CARLO):
        particles, points, repeats = config.pick(8000, 2000, 300), config.pick(15, 11, 5), config.pick(4, 2, 2)
        found = reference(counts, particles, points, repeats, unit.seed % 2**31)
        return {
            "moments": found.moments,
            "errors": found.errors,
            "log_evidence": found.log_evidence,
            "seconds": time.perf_counter() - began,
        }
    runs = Counted()
    factor = every_time(runs, inputs=INPUTS, outputs=OUTPUTS, draws=draws_of(config))
    method = cavity.EP(max_sweeps=config.pick(SWEEPS, SWEEPS, 2), tol=TOLERANCE)
    solution, moments = marginals(counts, factor, method)
    return {
        "moments": moments,
        "log_evidence": float(solution.log_evidence),
        "runs": runs.count,
        "seconds": time.perf_counter() - began,
    }


class Counted:
    """The program, and how many times it was run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, rng: np.random.Generator, *inputs: np.ndarray) -> tuple:
        self.count += len(inputs[0])
        return step(rng, *inputs)


def learned(problems: int, config: Config) -> dict[str, Any]:
    """One operator for all."""
    runs = Counted()
    factor = just_in_time(runs, inputs=INPUTS, outputs=OUTPUTS, draws=draws_of(config))
    found: dict[str, list] = {
        name: [] for name in ("moments", "log_evidence", "runs", "seconds", "consults", "audits", "status")
    }
    for number in range(problems):
        began, before = time.perf_counter(), runs.count
        solution, moments = marginals(seen(config, number), factor, cavity.EP(tol=TOLERANCE))
        report = factor.report()
        found["moments"].append(moments)
        found["log_evidence"].append(float(solution.log_evidence))
        found["runs"].append(runs.count - before)
        found["seconds"].append(time.perf_counter() - began)
        found["consults"].append(report.queries)
        found["audits"].append(report.audits)
        found["status"].append(str(solution.status))
    return found


def divergences(exact: np.ndarray, found: np.ndarray) -> np.ndarray:
    """KL of Gaussians with these means and variances, one a variable."""
    (mean, variance), (other, spread) = exact, found
    return 0.5 * (variance / spread - 1.0 + (mean - other) ** 2 / spread - np.log(variance / spread))


def summarise(results: Results, config: Config) -> Outcome:
    own = results[JIT]
    rows, checks_kl, ratios, against, numbers = [], [], [], [], {}
    consults = np.diff(own["consults"], prepend=0)
    for number, seconds in enumerate(own["seconds"]):
        name = f"problem {number + 1}"
        mine = array(own["moments"][number])
        every, truth = results.get(f"{EVERY}, {name}"), results.get(f"{MONTE_CARLO}, {name}")
        row: dict[str, Any] = {"consults": int(consults[number]), "runs": own["runs"][number], "seconds": seconds}
        row["log evidence"] = own["log_evidence"][number]
        if every is not None and truth is not None:
            exact, sampled = array(truth["moments"]), array(every["moments"])
            to_truth, sampled_to_truth = divergences(exact, mine), divergences(exact, sampled)
            checks_kl.append((to_truth.mean(), sampled_to_truth.mean()))
            ratios.append(every["runs"] / max(own["runs"][number], 1))
            against.append(divergences(sampled, mine).mean())
            noise = 0.5 * np.mean(array(truth["errors"])[0] ** 2 / exact[1])
            row |= {
                "KL to Monte Carlo": to_truth.mean(),
                "of growth": to_truth[0],
                "sampled: KL": sampled_to_truth.mean(),
                "sampled: of growth": sampled_to_truth[0],
                "sampled: runs": every["runs"],
                "sampled: seconds": every["seconds"],
                "sampled: log evidence": every["log_evidence"],
                "Monte Carlo: log evidence": truth["log_evidence"],
                "its error as KL": noise,
            }
        numbers[name] = row
        rows.append((name, *row.values(), *[""] * (13 - len(row))))
    heads = ("problem", *max((own for own in numbers.values()), key=len))
    table = Table(f"{config.pick(40, 10, 4)} ponds counted {TIMES} times; mean KL of all marginals", heads, rows)
    mine_kl, sampled_kl = np.array(checks_kl).mean(axis=0)
    last = float(own["seconds"][-1])
    sampled_seconds = float(np.mean([results[name]["seconds"] for name in results if name.startswith(EVERY)]))
    numbers["seconds of sampling over seconds of the last problem"] = sampled_seconds / last
    checks = {
        "all runs of the learned factor converge": all(status == "converged" for status in own["status"]),
        "its marginals are as near to Monte Carlo as those of sampling (within a factor of 2)": mine_kl
        < 2.0 * sampled_kl,
        "the program is run less often, from the first problem on": min(ratios) > 1.0,
        "once warm it is ten times faster than sampling": sampled_seconds > 10.0 * last,
    }
    sentence = (
        f"Mean KL of the marginals to Monte Carlo is {mine_kl:.1e} when messages are learned and {sampled_kl:.1e} when "
        f"each is sampled, and {np.mean(against):.1e} between the two. Questions: {', '.join(map(str, consults))}. "
        f"The last problem takes {last:.1f} s, sampling {sampled_seconds:.0f} s."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, grid = figure(1, 3, width=13.5, height=4.2)
    axes = grid.ravel()
    mine, name = results[JIT], "problem 1"
    exact = array(results[f"{MONTE_CARLO}, {name}"]["moments"])
    for found, colour, who in (
        (array(mine["moments"][0]), BLUE, JIT),
        (array(results[f"{EVERY}, {name}"]["moments"]), VERMILION, EVERY),
    ):
        axes[0].plot(exact[0, 1:], found[0, 1:] - exact[0, 1:], ".", color=colour, markersize=3, label=who)
        axes[1].plot(np.sqrt(exact[1, 1:]), np.sqrt(found[1, 1:]), ".", color=colour, markersize=3, label=who)
    ends = [np.sqrt(exact[1, 1:]).min(), np.sqrt(exact[1, 1:]).max()]
    axes[1].plot(ends, ends, color=GREY, linewidth=0.7)
    places = np.arange(1, len(mine["seconds"]) + 1)
    axes[2].plot(places, mine["seconds"], "o-", color=BLUE, label=JIT)
    sampled = [(k, results[f"{EVERY}, problem {k}"]["seconds"]) for k in places if f"{EVERY}, problem {k}" in results]
    axes[2].plot(*zip(*sampled, strict=True), "s--", color=VERMILION, label=EVERY)
    axes[2].set_yscale("log")
    axes[2].set_xticks(places)
    label(axes[0], "(a) posterior means, first problem", "Monte Carlo", "difference from it")
    label(axes[1], "(b) standard deviations", "Monte Carlo", "found")
    label(axes[2], "(c) time", "problem", "seconds")
    for ax in axes:
        legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-simulator",
    document="our own",
    title="A simulator inside a graph",
    claim="Where a factor is only a program with noise inside, learning its messages just in time gives the posteriors "
    "of sampling every message, with fewer runs of the program and, once warm, in much less time.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
