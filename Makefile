PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
DEV    := $(VENV)/.dev

.PHONY: demo test test-all torture audit lint bench bench-nation figures docs java chromium postgres r clean

# An environment is brought up to date whenever a pin or a requirement changes.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) .
	@touch $(BASE)

$(DEV): pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) '.[dev]'
	@touch $(BASE) $(DEV)

demo: $(BASE)
	$(BIN)/tallytree demo --out demo-release

# Spark needs Java: installed here when run as root, otherwise the command is printed and its tests are skipped.
java:
	@command -v java >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq default-jre-headless >/dev/null; \
	  else echo "no Java: the Spark tests will be skipped; install it with: sudo apt-get install default-jre-headless"; fi; }

# Pages are tested in Chromium: installed in the same way, otherwise these tests are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	  else echo "no Chromium: the tests of pages in a browser will be skipped; install it with: sudo apt-get install chromium"; fi; }

# Likewise the server that the tests on PostgreSQL start for themselves; they use nothing of its that is running.
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; \
	  else echo "no PostgreSQL: its tests will be skipped; install it with: sudo apt-get install postgresql"; fi; }

# R runs the R code of the docs: installed in the same way, otherwise that test is skipped.
r:
	@command -v Rscript >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends r-base-core >/dev/null; \
	  else echo "no R: the R code of the docs will not be run; install it with: sudo apt-get install r-base-core"; fi; }

# Without the tests marked `slow`: those on Spark and in a browser, and those that draw 10⁸ numbers, train or build for long.
test: $(DEV)
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

test-all: $(DEV) java chromium postgres r
	$(BIN)/pytest -n auto --dist loadgroup

# A thousand kills, a thousand faults, races, 5,000 mutations, 100,000 fuzzed inputs, 10,000 kernels and 2,000 whole
# releases: docs/reliability.md. About an hour and a half.
torture: $(DEV)
	$(BIN)/python -m tests.faults.torture

# NOT PRIVATE, on made-up data: bounds from outputs, the recorder at the border and all planted defects; writes
# docs/audit.md and its figures. Its rows are kept in audit-results/.
audit: $(DEV)
	$(BIN)/python -m experiments.audit

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(DEV)
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

# A country of 300 million persons and 8 million blocks: made up, released, verified, asked. 12 GB of memory, 20 GB of disk.
bench-nation: $(DEV)
	$(BIN)/python benchmarks/bench_nation.py --scale 1 --folder nation

# The documentation site. A warning is an error: a link between pages that leads nowhere is one.
docs: $(DEV)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --builder html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The docs' pictures of experiments, on made-up data.
figures: $(DEV)
	$(BIN)/python -m experiments.picture
	$(BIN)/python -m experiments.figures
	$(BIN)/python -m experiments.pgsr

clean:
	rm -rf $(VENV) demo-release demo-data docs/_build
