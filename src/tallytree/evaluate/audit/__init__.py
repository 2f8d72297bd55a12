"""NOT PRIVATE: lower bounds on the real ε of all that tallytree publishes, from outputs on made-up neighbours.

`running.audit` does it. From the ground up: `bounds` (scores to a bound on ε), `loss` (exact losses, and the likelihood
ratio that scores an output), `worlds` (tiny data sets and all their neighbours), `releases` and `rounds` (what is
audited), `planted` with `as_printed` and `shared_noise` (defects that must be caught), `results` and `plot`.
"""
