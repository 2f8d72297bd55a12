"""The methods of household synthesis, by name: what each measures, when to use it, and how to run it.

A method asks private tables for noisy counts until its budget is used up and fits a model to them. Any can replace any.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallytree.errors import SpecError
from tallytree.progress import Progress, silent
from tallytree.synthesis.methods.asking import Fitted, Step
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.households.rounds import PrivateTables

__all__ = ["DEFAULT", "METHODS", "Fitted", "Method", "Step", "method"]

DEFAULT = "tallytree-marginals"


@dataclass(frozen=True)
class Method:
    """A row of the table of methods. `home` is the module with its `Options` and its `run`, loaded when needed."""

    name: str
    paper: str
    measures: str
    use: str
    home: str

    def options(self, given: Mapping[str, Any] | None = None) -> Any:
        """The method's options with the given ones set; an unknown name or a bad value is a `SpecError`."""
        kind = import_module(f"tallytree.synthesis.methods.{self.home}").Options
        known = [field.name for field in fields(kind)]
        for name in given or {}:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise SpecError(f"{self.name} has no option {name!r}{meant} It has {', '.join(known)}")
        return kind(**(given or {}))

    def run(
        self,
        tables: PrivateTables,
        workload: Workload,
        *,
        options: Any = None,
        progress: Progress = silent,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Fitted:
        """Spend the whole budget of `tables` and fit a model for the workload.

        `options` is what `self.options` gave, a mapping for it, or None. `checkpoint` is a folder that keeps the model
        of the last round, so that a killed run whose tables have a journal is resumed without fitting again; without
        it the rounds are fitted again, to the same models. `progress` is called after every round.
        """
        if options is None or isinstance(options, Mapping):
            options = self.options(options)
        home = import_module(f"tallytree.synthesis.methods.{self.home}")
        if not isinstance(options, home.Options):
            raise SpecError(f"these are not options of {self.name}")
        if workload.schema != tables.schema:
            raise SpecError("the workload is for another schema than the private tables")
        if tables.rounds:
            raise SpecError("these private tables were asked before; a method needs their whole budget to itself")
        fitted: Fitted = home.run(tables, workload, options, progress, checkpoint)
        return fitted


METHODS = {
    method.name: method
    for method in (
        Method(
            "tallytree-marginals",
            "tallytree; the model is HQR's H-GEM without its network, the choice of tables follows AIM (McKenna and "
            "others, 2022)",
            "sizes and every attribute first; then whole tables of the workload, chosen where the model is worst, with "
            "less noise as the model gets better",
            "by default",
            "marginals",
        ),
        Method(
            "mwem",
            "HQR, Algorithms 1 and 2",
            "single cells of the workload's tables, chosen where the model is worst",
            "for comparison, on domains of at most some million possible households",
            "mwem",
        ),
        Method(
            "h-gem",
            "HQR, Algorithms 3 and 4",
            "single cells of the workload's tables, chosen where the model is worst",
            "for comparison",
            "hgem",
        ),
    )
}


def method(name: str = DEFAULT) -> Method:
    """A method by name."""
    if name not in METHODS:
        raise SpecError(f"there is no synthesis method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name]
