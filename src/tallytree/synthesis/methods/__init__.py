"""The methods of household synthesis, by name: what each measures, when to use it, and how to run it.

A method asks private tables for noisy counts until its budget is used up and fits a model to them. Any can replace any.
Engines that take a while to load are loaded when a model is fitted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, silent
from tallytree.core.registry import Registry
from tallytree.domain.schema import Schema
from tallytree.synthesis.methods.asking import Asking, Fitted
from tallytree.synthesis.methods.marginals import MarginalsOptions
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.households.rounds import PrivateTables

DEFAULT = "tallytree-marginals"
GRADIENTS = ("jax", "optax")  # of the extra `synth`


class Options(Protocol):
    """The options of a method: a frozen dataclass that knows how to run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self, schema: Schema) -> None:
        """Refuse a schema that the method cannot work with."""

    def run(self, asking: Asking) -> Fitted:
        """Spend the whole budget, and fit a model."""
        ...


@dataclass(frozen=True)
class Method:
    """A row of the table of methods: its options know which schemas they can be used with, and how to run."""

    name: str
    paper: str
    measures: str
    use: str
    kind: type[Options]
    needs: tuple[str, ...] = ()  # modules that are not in the base install

    def options(self, given: Mapping[str, Any] | None = None) -> Options:
        """The method's options with the given ones set; an unknown name or a bad value is a `SpecError`."""
        known = [field.name for field in fields(self.kind)]
        for name in given or {}:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise SpecError(f"{self.name} has no option {name!r}{meant} It has {', '.join(known)}")
        return self.kind(**(given or {}))

    def prepared(self, schema: Schema, given: Mapping[str, Any] | None) -> Options:
        """The options, if the method can be run here and with this schema; nothing private is needed to tell."""
        if missing := [module for module in self.needs if find_spec(module) is None]:
            needed = " and ".join(missing)
            raise SpecError(f"{self.name} needs {needed}: install tallytree with its extra, tallytree[synth]")
        options = self.options(given)
        options.check(schema)
        return options

    def run(
        self,
        tables: PrivateTables,
        workload: Workload,
        *,
        options: Options | Mapping[str, Any] | None = None,
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
        if not isinstance(options, self.kind):
            raise SpecError(f"these are not options of {self.name}")
        if workload.schema != tables.schema:
            raise SpecError("the workload is for another schema than the private tables")
        if tables.rounds:
            raise SpecError("these private tables were asked before; a method needs their whole budget to itself")
        return options.run(Asking(tables, workload, progress, checkpoint))


METHODS: Registry[Method] = Registry(
    {
        DEFAULT: Method(
            DEFAULT,
            "tallytree; the model is HQR's H-GEM without its network, the choice of tables follows AIM (McKenna and "
            "others, 2022)",
            "sizes and every attribute first; then whole tables of the workload, chosen where the model is worst, with "
            "less noise as the model gets better",
            "by default",
            MarginalsOptions,
            GRADIENTS,
        ),
    },
    "rivals.synthesizers",
)


def method(name: str = DEFAULT) -> Method:
    """A method by name."""
    if name not in METHODS:
        raise SpecError(f"there is no synthesis method {name!r}; {did_you_mean(name, METHODS)}")
    return METHODS[name]
