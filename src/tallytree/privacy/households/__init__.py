"""What synthesis adds to the border: neighbours, rounds, selection, the journal, and composition with a release."""
