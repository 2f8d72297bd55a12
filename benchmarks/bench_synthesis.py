"""A full default run of household synthesis: 75,000 made-up households of the ACS-shaped domain, HQR's workload.

    python benchmarks/bench_synthesis.py [--sets 128] [--scale 1]

Writes a line of JSON: wall and processor time, peak memory and errors (NOT PRIVATE: made-up data). The aim is a quarter
of an hour on two cores that do nothing else, and 8 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

from tallytree.lab.microdata import compare_synthesis, made_up
from tallytree.privacy.budget import Budget
from tallytree.synthesis.workload import sampled_sets


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=128, help="attribute sets for each number of household attributes")
    parser.add_argument("--scale", type=float, default=1.0, help="of 75,000 households")
    parser.add_argument("--epsilon", default="1")
    given = parser.parse_args()
    truth = made_up("acs", scale=given.scale, seed=2022)
    workload = sampled_sets(truth.schema, 3, given.sets, "benchmark")
    wall, processor = time.perf_counter(), time.process_time()
    [row] = compare_synthesis(
        truth,
        workload,
        ["tallytree-marginals"],
        [Budget(epsilon=given.epsilon, delta=f"1/{truth.codes.number**2}")],  # δ as in the paper
        drawn=False,
    )
    print(
        json.dumps(
            {
                "benchmark": "synthesis",
                "households": truth.codes.number,
                "tables": len(workload),
                "queries": workload.queries,
                "epsilon": row["epsilon"],
                "seconds": round(time.perf_counter() - wall, 1),
                "processor_seconds": round(time.process_time() - processor, 1),
                "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
                "max_error": row["max_error"],
                "mean_error": row["mean_error"],
                "processors": os.cpu_count(),
                "load_average": os.getloadavg()[1],
            }
        )
    )


if __name__ == "__main__":
    main()
