"""The command line: thin. Specs in, calls, and what a person sees."""
