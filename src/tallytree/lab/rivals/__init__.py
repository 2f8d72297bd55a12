"""For comparison only: other papers' estimators, solvers and synthesizers.

Two modules have rows for the registries: `estimators` (mechanisms) and `synthesizers` (methods of synthesis).
"""
