"""The public names, for type checkers and for whoever uses one first."""

from .answering.api import Answers as Answers
from .answering.api import answer as answer
from .answering.api import plan as plan
from .answering.plan import BatchPlan as BatchPlan
from .domain import Domain as Domain
from .evaluation.evaluation import Evaluation as Evaluation
from .evaluation.evaluation import evaluate as evaluate
from .evaluation.marginals import workload_error as workload_error
from .evaluation.tables import TablePair as TablePair
from .pages.words import ProgressBar as ProgressBar
from .release.release import Release as Release
from .release.tables import ReleaseSet as ReleaseSet
from .synthesizer import Synthesizer as Synthesizer
from .table.coded import CodedTable as CodedTable
from .table.schema import Schema as Schema
from .table.tables import TableSet as TableSet
from .workload.workload import QueryWorkload as QueryWorkload
from .workload.workload import Workload as Workload

__version__: str
