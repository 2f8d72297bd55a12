"""A release for other software: SDMX-CSV, JSON-stat and CSV on the Web. One module to a format, one table for all."""
