"""Numba's compiler without its last step: for functions that are compiled into the kernels which call them.

This goes beyond what Numba promises to keep, so `kernels` uses it with tried versions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """Code that is linked into that of callers, which optimise it with their own and make machine code of both."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class Part(Compiler):  # type: ignore[misc]
    """Numba's compiler without its last step, the machine code, as it is for Numba's own inner functions."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.flags.no_compile = True
        self.state.library = PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        made = super().compile_extra(function)
        # Callers find the code by an entry point, which must be a built-in function. That of a string with a name of
        # its own is one, and refuses the arguments of any call from Python.
        entry = f"{function.__qualname__} {made.signature}".index
        made.target_context.insert_user_function(entry, made.fndesc, [made.library])
        return made._replace(entry_point=entry)
