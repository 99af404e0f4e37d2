"""The default search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.optimizer.search_batch import BatchSearch

if TYPE_CHECKING:
    from pytest_skillopt.optimizer.parameters import TrialParameters
    from pytest_skillopt.optimizer.workbench import Workbench


class TrialSearch(BatchSearch):
    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        super().__init__(bench)
        self._parameters = parameters
