"""Predict what a budget allows, before anything is spent: priors, simulation, goals. Nothing is published."""
