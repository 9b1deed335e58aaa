"""The peers of `benchmarks/search.py` on the flat problem: Optuna's stock NSGA-II and pymoo's NSGA-II."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import optuna

from benchmarks.search_problems import Problem
from search.frontier import nondominated

PYMOO_POPULATION = 200  # the best of 100, 200 and 400 on the toy


@dataclass
class Trace:
    """When shares of the exact hypervolume were reached: {share: (evaluations, CPU seconds of the peer alone)}."""

    reached: dict[float, tuple[int, float]] = field(default_factory=dict)
    share: float = 0.0
    evaluations: int = 0
    seconds: float = 0.0


class Watch:
    """Keeps the non-dominated points that a peer evaluated; its own time is not charged to the peer."""

    def __init__(self, problem: Problem, shares: tuple[float, ...]) -> None:
        self.problem, self.shares, self.trace = problem, shares, Trace()
        self._front = np.zeros((0, len(problem.scorer.objectives)))
        self._start, self._own = time.process_time(), 0.0

    def see(self, losses: np.ndarray, violations: np.ndarray) -> None:
        now = time.process_time()
        front = np.concatenate([self._front, losses[violations <= 0]])
        self._front = front[nondominated(front)]
        trace = self.trace
        trace.evaluations += len(losses)
        trace.seconds = now - self._start - self._own
        trace.share = self.problem.share(self._front)
        for share in self.shares:
            if trace.share >= share:
                trace.reached.setdefault(share, (trace.evaluations, trace.seconds))
        self._own += time.process_time() - now


def optuna_flat(problem: Problem, seed: int, seconds: float, shares: tuple[float, ...], target: float) -> Trace:
    """Optuna's NSGA-II, ask and tell one by one as `study.optimize` does, until `target` or out of CPU seconds."""
    study = optuna.create_study(
        directions=["minimize"] * len(problem.scorer.objectives), sampler=optuna.samplers.NSGAIISampler(seed=seed)
    )
    ordered = [axis.ordered for axis in problem.scorer.space.axes] + [False]
    grid = {
        f"x{i}": optuna.distributions.IntDistribution(0, size - 1)
        if is_ordered
        else optuna.distributions.CategoricalDistribution(range(size))
        for i, (size, is_ordered) in enumerate(zip(problem.flat_shape, ordered, strict=True))
    }
    watch = Watch(problem, shares)
    while watch.trace.seconds < seconds and target not in watch.trace.reached:
        trial = study.ask(grid)
        losses, violations = problem.flat(np.array([[trial.params[name] for name in grid]]))
        trial.set_constraint("violation", float(violations[0]))
        study.tell(trial, losses[0].tolist())
        watch.see(losses, violations)
    return watch.trace


def pymoo_flat(problem: Problem, seed: int, seconds: float, shares: tuple[float, ...], target: float) -> Trace:
    """pymoo's NSGA-II on whole numbers, its population evaluated in one call, until `target` or out of CPU seconds.

    Raises:
        ImportError: pymoo is not installed.
    """
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem as PymooProblem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.sampling.rnd import IntegerRandomSampling

    watch = Watch(problem, shares)

    class Flat(PymooProblem):
        def __init__(self) -> None:
            upper = np.array(problem.flat_shape) - 1
            objectives = len(problem.scorer.objectives)
            super().__init__(n_var=len(upper), n_obj=objectives, n_ieq_constr=1, xl=0, xu=upper, vtype=int)

        def _evaluate(self, x: np.ndarray, out: dict, *_: object, **__: object) -> None:
            losses, violations = problem.flat(x.astype(np.int64))
            out["F"], out["G"] = losses, violations[:, None]
            watch.see(losses, violations)

    algorithm = NSGA2(
        pop_size=PYMOO_POPULATION,
        sampling=IntegerRandomSampling(),
        crossover=SBX(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithm.setup(Flat(), termination=("n_gen", 10**9), seed=seed)
        while watch.trace.seconds < seconds and target not in watch.trace.reached:
            algorithm.next()
    return watch.trace


PEERS: dict[str, Callable[[Problem, int, float, tuple[float, ...], float], Trace]] = {
    "optuna nsga2 (flat)": optuna_flat,
    "pymoo nsga2 (flat)": pymoo_flat,
}
