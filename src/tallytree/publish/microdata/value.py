"""`Synthesis`: a model of private households that households are drawn from, with its files and its errors."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tallytree.core.charts import inline, stacked_bar
from tallytree.core.notebook import page, paragraph, quoted, table
from tallytree.core.progress import Progress, silent
from tallytree.domain.schema import Attribute
from tallytree.privacy.budget import as_decimal
from tallytree.publish.folder import place_of
from tallytree.publish.microdata.contents import SynthesisContents
from tallytree.publish.microdata.files import write_microdata
from tallytree.publish.run_folder import RunFolder, warned_if_not_recorded
from tallytree.publish.statement import guarantee
from tallytree.synthesis.trust import TableAccuracy, table_accuracies


def _attributes(attributes: tuple[Attribute, ...]) -> str:
    return ", ".join(f"{each.name} ({each.codes})" for each in attributes) or "none"


class Synthesis(SynthesisContents):
    """A model of private households with all it was made from. Everything in it is public.

    `number` is how many households `draw` and `save` give if not told otherwise.
    """

    def __repr__(self) -> str:
        schema = self.schema
        attributes = f"{len(schema.household)} + {len(schema.person)} attributes, at most {schema.max_persons} persons"
        parts = f"{self.number:,} households", attributes, self.method, str(self.budget)
        return f"Synthesis({', '.join([quoted(self.title), *parts])})"

    def _repr_html_(self) -> str:
        schema, records = self.schema, self.fitted.rounds
        facts = {
            "households": f"{self.number:,} synthetic ones for {self.fitted.number:,} real ones"
            + ("" if self.neighbours.number_is_public else " (measured with noise)"),
            "of households": _attributes(schema.household),
            "of persons": f"{_attributes(schema.person)}; at most {schema.max_persons} in a household",
            "workload": f"{len(self.workload):,} tables with {self.workload.queries:,} counts",
            "method": self.method,
            "privacy": guarantee(self.budget),
            "protects": self.neighbours.describe(),
            "truncated": self.truncation if self.truncated else "",
        }
        rows = [
            (
                record.words,
                "published exactly" if record.kind == "public" else "lost" if record.lost else record.kind,
                as_decimal(record.rho),
                "" if record.noise is None else f"{record.noise:,.1f}",
            )
            for record in records
        ]
        headers = ("asked", "how", "ρ", "noise on one count (standard deviation)")
        asked = table(headers, rows, right=(2, 3), rest="fitted.rounds has all of them")
        spent = {f"{place}: {record.words}": float(record.rho) for place, record in enumerate(records, 1) if record.rho}
        bar = inline(lambda: stacked_bar(spent, rest="")) if spent else ""
        return page(
            self.title, facts, asked, paragraph("What each question took of ρ, in their order:" if bar else ""), bar
        )

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
        if self.folder is not None and RunFolder(self.folder).unnamed:
            RunFolder(self.folder).finish()
        return saved
