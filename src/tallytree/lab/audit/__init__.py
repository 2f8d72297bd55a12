"""NOT PRIVATE: an audit of all that tallytree publishes, on made-up neighbouring tables.

`schedule.audit` runs it. From the ground up: `bounds` (outputs to a bound on ε), `loss` (exact losses, and the
likelihood ratio that scores an output), `worlds` (small tables and their neighbours), `releases` and `household_rounds`
(bounds from outputs), `border` (what passes the privacy border, recorded), `planted` with `as_printed` and
`shared_noise` (defects that must be caught), `verdicts`.
"""
