"""NOT PRIVATE: made-up data and comparisons with the truth. Seeds exist here and nowhere else."""
