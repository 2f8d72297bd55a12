"""What a budget will buy, before anything is spent: priors, simulation, goals. It publishes nothing."""
