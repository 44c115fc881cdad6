"""Tasks on threads that do not multiply: each task computes on one thread of its own.

scikit-learn adds floating-point numbers in an order that depends on its number of threads, so
one thread for each task also makes results the same for any number of workers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from adaptive_qs.progress import StepProgress

Result = TypeVar("Result")


def run_tasks(
    tasks: Sequence[Callable[[], Result]], workers: int, progress: StepProgress | None = None
) -> list[Result]:
    """Results of all tasks, in order.

    Args:
        tasks: what to do; they must not depend on each other.
        workers: threads in all.
        progress: called with the tasks done and in all.
    """
    controller = ThreadpoolController()
    results = []

    def one_thread() -> None:
        # OpenMP keeps its limit for each thread, so the pool's threads set their own.
        controller.limit(limits=1)

    with (
        controller.limit(limits=1),
        ThreadPoolExecutor(workers, initializer=one_thread) as pool,
    ):
        for result in pool.map(lambda task: task(), tasks):
            results.append(result)
            if progress is not None:
                progress(len(results), len(tasks))
    return results


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Collects what libraries warn of; nothing reaches the terminal.

    Yields:
        Sentences for the reader, complete when the block ends.
    """
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield sentences
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        sentences.append("logistic regression did not converge in one or more of the repeats")
