PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint bench java clean

# The environment is made anew whenever a pin or a requirement changes.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/tallytree demo --out demo-release

# Spark needs Java: installed here when run as root, otherwise the command is printed and that test skips.
java:
	@command -v java >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq default-jre-headless >/dev/null; \
	  else echo "no Java: the Spark test will skip; install it with: sudo apt-get install default-jre-headless"; fi; }

test: $(READY) java
	$(BIN)/pytest -n auto --dist loadgroup

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) demo-release
