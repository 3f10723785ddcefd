"""Progress bars speak on a terminal and nowhere else."""

import io

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import cavity
from cavity.reports import SweepProgress, UnitProgress
from cavity.reports import progress as progress_bars


def run_sweeps(console, quiet):
    with SweepProgress("EP on clutter", console, quiet) as progress:
        return cavity.infer(cavity.models.clutter(np.array([0.0, 1.0, 2.0])), callback=progress)


def test_sweeps_are_shown_on_a_terminal():
    stream = io.StringIO()
    found = run_sweeps(Console(file=stream, force_terminal=True, width=120), False)
    text = stream.getvalue()
    assert found.converged
    assert "mismatch" in text
    assert f"sweep {int(found.sweeps)}" in text


def test_nothing_is_shown_off_a_terminal_or_when_quiet():
    for terminal, quiet in ((False, False), (True, True)):
        stream = io.StringIO()
        run_sweeps(Console(file=stream, force_terminal=terminal), quiet)
        assert stream.getvalue() == ""


def test_a_long_compilation_is_shown_while_it_lasts(monkeypatch):
    monkeypatch.setattr(progress_bars, "AFTER", 0.0)
    for quick, shown in ((False, True), (True, False)):
        stream = io.StringIO()
        with UnitProgress("work", 1, 0, Console(file=stream, force_terminal=True, width=120)) as progress:
            if not quick:
                jax.jit(lambda x: jnp.tanh(x) @ x)(jnp.ones(4))
            progress.progress.refresh()
        assert (progress_bars.COMPILING in stream.getvalue()) is shown
        assert (progress.clock.seconds > 0.0) is shown


def test_units_are_counted():
    stream = io.StringIO()
    with UnitProgress("work", 3, 1, Console(file=stream, force_terminal=True, width=120)) as progress:
        progress.begin("second")
        progress.progress.refresh()
        progress.finish()
    assert "second" in stream.getvalue()
    assert "2/3" in stream.getvalue()
