"""The version, where everything that names it can read it: statements, journals, the command."""

VERSION = "0.3.0"
