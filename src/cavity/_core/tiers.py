"""Compiled programs in two tiers: code that is quickly made for the first answer, optimised code for long use.

XLA's backend is most of the time until a first answer. On a processor it takes a fifth to a third of that when told
not to optimise, and its code takes up to three times as long; on a GPU a first answer takes 0.6 of the time when XLA is
told not to try which kernel for a matrix product is the fastest. So a program is made quickly at first; when it has
been used for `USED` seconds a thread makes the optimised one, which takes its place as soon as it is there. Both are
made from one trace. The answers agree to rounding.

The environment variable CAVITY_COMPILE asks for one tier alone: `optimised`, whose bits do not depend on when a program
is replaced, or `quick`. Where XLA_FLAGS says how XLA is to optimise, that holds and there are no tiers.
"""

import functools
import importlib.metadata
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from cavity._core.precision import is_traced, is_tracing

P = ParamSpec("P")
R = TypeVar("R")

#: seconds of use after which a program is worth optimising
USED = 1.0
#: the environment variable, and what it may say
VARIABLE, CHOICES = "CAVITY_COMPILE", ("tiered", "optimised", "quick")
#: parts of the names of XLA's flags that say how it is to optimise
OPTIMISATION = ("xla_backend_optimization_level", "xla_llvm", "xla_cpu", "xla_gpu_autotune")

#: the name of the threads that optimise
THREAD = "cavity-optimise"
#: one program is optimised at a time
optimising = threading.Lock()
logger = logging.getLogger("cavity")


@functools.cache
def quick_options(platform: str) -> dict[str, Any]:
    """What makes XLA quick on this kind of device; nothing where nothing is known to."""
    if platform != "cpu":
        return {"xla_gpu_autotune_level": 0} if platform == "gpu" else {}
    options: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11):
        options["xla_cpu_use_fusion_emitters"] = False  # unknown to later versions
    return options


def choice() -> str:
    """Which tiers are wanted, as CAVITY_COMPILE and XLA_FLAGS say at this moment.

    Raises:
        ValueError: CAVITY_COMPILE holds another word.
    """
    wanted = os.environ.get(VARIABLE) or CHOICES[0]
    if wanted not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}; found {wanted!r}.")
    flags = os.environ.get("XLA_FLAGS", "")
    return "optimised" if any(part in flags for part in OPTIMISATION) else wanted


class Use:
    """How long one program, that of one signature, has been used; whether its optimised code is wanted and there."""

    def __init__(self) -> None:
        self.calls, self.seconds, self.wanted, self.ready = 0, 0.0, False, False


class TieredFunction(Generic[P, R]):
    """A function as `jax.jit` makes it, in two tiers. Inside traces it is the function of `jax.jit`."""

    def __init__(self, function: Callable[P, R], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self._static, self._names = options.get("static_argnames", ()), tuple(inspect.signature(function).parameters)
        self.optimised = jax.jit(function, **options)
        self._function, self._options = function, options
        self._uses: dict[Any, Use] = {}

    @functools.cached_property
    def quick(self) -> Any:
        """The function whose code is quickly made."""
        return jax.jit(self._function, compiler_options=quick_options(jax.default_backend()), **self._options)

    def _cache_size(self) -> int:
        """How many programs were compiled, by the name that functions of `jax.jit` have for it."""
        made = vars(self).keys() & {"optimised", "quick"}
        return sum(getattr(self, tier)._cache_size() for tier in made)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        wanted = choice()
        if wanted == "optimised" or is_traced((args, kwargs)) or is_tracing():
            return self.optimised(*args, **kwargs)
        if wanted == "quick":
            return self.quick(*args, **kwargs)
        return self._timed(args, kwargs)

    def _timed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Call the tier that is there, and ask for the other when this one has been used for long."""
        signature, shapes = self._signature(args, kwargs)
        use = self._uses.setdefault(signature, Use())
        if use.ready:
            return self.optimised(*args, **kwargs)
        began = time.perf_counter()
        found = jax.block_until_ready(self.quick(*args, **kwargs))
        if use.calls:  # the first one was compiled
            use.seconds += time.perf_counter() - began
        use.calls += 1
        if use.seconds > USED and not use.wanted:
            use.wanted = True
            # Not a daemon: Python would end while XLA's own threads compile, which they do not survive.
            threading.Thread(target=self._optimise, args=(use, *shapes), name=THREAD).start()
        return found

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, dict[str, Any]]]:
        """What tells the programs of this function apart, and arguments without numbers that lead to the same one."""
        given = [*zip(self._names, args, strict=False), *kwargs.items()]
        static = tuple(pair for pair in given if pair[0] in self._static)
        shapes = {name: jax.tree.map(shape_of, value) for name, value in given if name not in self._static}
        leaves, structure = jax.tree.flatten(shapes)
        signature = structure, static, tuple((leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves)
        shapes |= dict(static)
        return signature, (tuple(map(shapes.pop, self._names[: len(args)])), shapes)

    def _optimise(self, use: Use, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the optimised code, in a thread of its own. Where that fails the program stays as it is."""
        with optimising:
            if not threading.main_thread().is_alive():
                return  # Python is about to end
            try:
                with jax.enable_x64(True):
                    self.optimised.lower(*args, **kwargs).compile()
                use.ready = True
            except Exception:
                logger.warning(
                    "optimising %s failed; its first code stays in use", self._function.__name__, exc_info=True
                )


def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """A number or an array without its values."""
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def tiered_jit(function: Callable[P, R] | None = None, **options: Any) -> Any:
    """`jax.jit` in two tiers, for functions that are called on the host with whole problems.

    Args:
        function: to be compiled.
        **options: static_argnames and donate_argnames, tuples of names.

    Returns:
        The function, or, where none is given, the decorator.
    """
    return functools.partial(TieredFunction, **options) if function is None else TieredFunction(function, **options)
