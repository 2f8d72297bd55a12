"""Release directories: made, saved, loaded and verified."""

from tallytree.publish.release import Release, estimated, release, resume
from tallytree.publish.verification import Check, Verification, verify

__all__ = ["Check", "Release", "Verification", "estimated", "release", "resume", "verify"]
