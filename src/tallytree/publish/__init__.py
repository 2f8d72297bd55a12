"""Release directories: made, saved, loaded and verified."""

from tallytree.publish.answers import Answer
from tallytree.publish.planning import PlanReport, plan
from tallytree.publish.prior import Prior
from tallytree.publish.release import Release, estimated, release, resume
from tallytree.publish.verification import Check, Verification, verify

__all__ = [
    "Answer",
    "Check",
    "PlanReport",
    "Prior",
    "Release",
    "Verification",
    "estimated",
    "plan",
    "release",
    "resume",
    "verify",
]
