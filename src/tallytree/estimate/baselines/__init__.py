"""What our estimators are held against: generic solvers and the papers' cost tables."""
