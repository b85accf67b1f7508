"""Train PyTorch models in less memory.

`Stack` trains reversible blocks of your own modules, `models` has reversible vision and text transformers, `plan` finds
the fastest way to train one of them in a number of bytes, and `fit` does that for models that are not reversible.
"""

import torch as _torch

from ._version import __version__, built_for_torch as _built_for_torch

if not _torch.__version__.startswith(_built_for_torch + "."):
    raise ImportError(
        f"pareprop {__version__} was built for torch {_built_for_torch}, and this is torch {_torch.__version__}: "
        f"install torch=={_built_for_torch}.*, or install pareprop again from its sources beside this torch"
    )

from . import distributed, memory, models, nn, optim  # noqa: E402
from ._core import StackPlan, StepPlan  # noqa: E402
from ._fit import Fit, fit  # noqa: E402
from ._plan import Plan, plan  # noqa: E402
from ._stack import Drift, Stack, Task  # noqa: E402
from ._trace import Trace, trace  # noqa: E402
from ._verify import Verification, verify  # noqa: E402

__all__ = [
    "Drift",
    "Fit",
    "Plan",
    "Stack",
    "StackPlan",
    "StepPlan",
    "Task",
    "Trace",
    "Verification",
    "__version__",
    "distributed",
    "fit",
    "memory",
    "models",
    "nn",
    "optim",
    "plan",
    "trace",
    "verify",
]
