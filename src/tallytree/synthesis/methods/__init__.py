"""Methods of synthesis: which tables to ask for, round by round, and which model to fit to them."""
