"""What `validate --json` and `release --json` print: plain values, documented in docs/release.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.release.value import Release
from tallytree.publish.statement import guarantee


def released(release: Release, directory: Path, release_id: str, page: Path | None = None) -> dict[str, Any]:
    """A release in public values."""
    measurements, bars = release.measurements, release.error_bars
    return {
        "release_id": release_id,
        "directory": str(directory),
        "report": None if page is None else str(page),
        "title": release.title,
        "mechanism": release.mechanism,
        "fallback": release.fallback is not None,
        "privacy": guarantee(measurements.budget),
        "budget": measurements.budget.to_json(),
        "unit": measurements.neighbours.unit.kind,
        "ledger": measurements.ledgered,
        "regions": regions_of(release.hierarchy.regions),
        **({} if (by := release.hierarchy.by) is None else {"by": {one.name: list(one.values) for one in by.columns}}),
        "sizes": [release.sizes[0], release.sizes[-1]],
        "groups": release.total,
        "groups_are_public": measurements.neighbours.public_totals,
        "areas": len(release.areas),
        "intervals": bars.which,
        "confidence": bars.confidence,
    }


def regions_of(hierarchy: Hierarchy) -> dict[str, int]:
    """How many regions each level has."""
    return dict(zip(hierarchy.levels, np.diff(hierarchy.level_starts).tolist(), strict=True))
