"""`Synthesis`: a model of private households that households are drawn from, with its files and its errors."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tallytree.progress import Progress, silent
from tallytree.publish.folder import place_of
from tallytree.publish.microdata.contents import SynthesisContents
from tallytree.publish.microdata.files import write_microdata
from tallytree.publish.recording import warned_if_not_recorded
from tallytree.synthesis.trust import TableAccuracy, table_accuracies


class Synthesis(SynthesisContents):
    """A model of private households with all it was made from. Everything in it is public.

    `number` is how many households `draw` and `save` give if not told otherwise.
    """

    def questions(self) -> list[TableAccuracy]:
        """The errors of the model's own answers, estimated from the measurements; `save` has those of its files."""
        answers = [self.fitted.number * table for table in self.fitted.model.answers_all(self.workload)]
        return table_accuracies(self.workload, answers, self.evidence)

    def save(
        self,
        directory: str | PathLike[str],
        *,
        number: int | None = None,
        replace: bool = False,
        progress: Progress = silent,
    ) -> str:
        """Draw households and write the directory, whole or not at all; returns its id, as `Release.save` does."""
        target = place_of(Path(directory))
        saved = write_microdata(self, target, number=number, replace=replace, progress=progress)
        if self.receipt is not None:
            with warned_if_not_recorded(target, self.receipt):
                self.receipt.record(saved)
        return saved
