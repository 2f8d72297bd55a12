"""Releases of many cells: a partitioned Parquet data set by level and region, written, checked and asked in pieces."""
