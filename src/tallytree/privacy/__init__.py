"""The privacy border: everything that a promise of privacy rests on. No other package opens private data.

Read it in four sittings of about an hour, in this order. Each part is one theorem. Each step of its proof names the
function that carries it out (docs/privacy.md has the proofs, and the test of each step). One module opens seals,
`run`; `private_tables` gives it functions of their content. A test holds the list.

1. **A release**: `neighbours`, `budget`, `plan`, `measurements`, `run`.

   *What `measure` gives is ε-differentially private, or ρ-zCDP, for all data sets that are neighbours, with the plan's
   ε or ρ.*

   - Between neighbours a view of one level moves at most so far, in L1 and in squared L2: `Neighbours.sensitivity`.
     Data that the relation does not describe are refused: `Neighbours.of`.
   - Discrete noise of a scale then costs so much, and a cost asks for such a scale: `cost_of`, `scale_for`.
   - Queries compose, later ones may depend on earlier answers, and their shares of the budget add up to exactly 1 (at
     each size, to no more): `Plan`, `Plan.cost`. (`derive_facts`
     and all that follows is post-processing of `Measurements`.)
   - The view plus noise of that scale leaves, and nothing else: `measure_with`, `view_of`, `noisy_lists`.
   - ρ implies (ε, δ), rounded to the safe side: `epsilon_of`, `largest_rho`.

2. **The ledger**: `chain`, `ledger`, `journal`.

   *All that is charged to one account of a ledger costs, in all, at most what the account was opened with.*

   - A run reserves its cost before anything is drawn, once, or is refused: `Reservation`, `Ledger.reserve`.
   - A reservation pays for one set of measurements: `Ledger.commit`; or for rounds that together cost no more. Each
     round begins once over all copies of a journal: `Ledger.begin_round`.
   - Accounts follow from the ledger's entries: `books_of`.
   - These are checked from the first to the last before they are used, so that an edited, cut or older file is noticed:
     `Chain`.

3. **The noise** (`noise/`; docs/noise.md has the proofs): `keystream`, `inversion`, `samplers`, and `noise` itself.

   *If words are uniform and independent, every draw has exactly the stated distribution over all integers (one of 2^62
   or more in size is an error), and what a release draws comes from such words.*

   - Words are ChaCha20 keystreams under keys that the operating system made: `Keystream`.
   - Cumulative probabilities are enclosed rigorously, to any precision: `Thresholds.enclosed`, `Thresholds.cells`.
   - An outcome is the number of them that a uniform number reaches, which is never rounded: `Table.draw`, `Uniform`.
   - Laplace and Gaussian integers are put together from such outcomes: `laplace_sampler`, `gaussian_sampler`.
   - A release draws from these or from OpenDP's samplers: `cryptographic`. (Seeds are made in `tallytree.lab`.)

4. **What synthesis adds**: `selection`, `private_tables`, `joint_cost`.

   *All that one `PrivateTables` gives out is ρ-zCDP for neighbouring households, with its budget's ρ, also if the run
   was killed and resumed; and with a release it has one promise for one relation, at a stated ρ.*

   - Between neighbours a table, or some of its cells, moves at most so far: `HouseholdNeighbours.sensitivity`,
     `cells_sensitivity`. Only tables that cannot move are given exactly: `PrivateTables.public_counts`.
   - A measurement adds noise of the scale that its cost asks for: `PrivateTables.measure`.
   - A choice follows the exponential mechanism exactly, by scores that move at most by their sensitivity, and costs
     ε²/8: `candidates`, `choose`, `cost_of_selection`.
   - Rounds compose; each is within the budget, written down as spent before it is drawn (on disk, where the run has a
     folder), and then not drawn again: `Run.draw_round`, `Reservation`. The rows are those that the run began with:
     `digest_of_rows`.
   - A household that changes its region is two steps of a release's relation, which so costs 2ε or 4ρ: `together`. The
     release is charged to the households' account too, once: `check_account`, `charge_release`.
"""

from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, Sensitivity, one_entity, one_group
from tallytree.privacy.plan import MeasurementQuery, Plan
from tallytree.privacy.run import measure

__all__ = [
    "Budget",
    "Ledger",
    "Measurement",
    "MeasurementQuery",
    "Measurements",
    "Neighbours",
    "Plan",
    "PrivacyUnit",
    "Sensitivity",
    "measure",
    "one_entity",
    "one_group",
]
