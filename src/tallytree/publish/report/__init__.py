"""Pages for people: one self-contained HTML file for a release, for synthetic households, or for a plan.

A page is made from public values alone, opens from disk without a network, and loads nothing. Names of regions are data
and never markup: text is escaped where it is written, and what is embedded for the page's own script stays a value.
"""
