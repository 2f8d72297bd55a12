"""What makes a household plausible: who is who in it, and rules that hold for all of them. Public, as the schema is."""
