"""The version, where everything that names it can read it: statements, journals, the command."""

VERSION = "0.4.0.dev0"
