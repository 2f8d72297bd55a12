"""What our estimators are compared with: generic solvers and the papers' cost tables."""
