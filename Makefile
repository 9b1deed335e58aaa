# Two commands do all set-up on a fresh machine: `make study` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RESULTS ?= build/bench
# one thread per process: the tests and the search bring their own parallelism
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: study test coverage lint types bench guide clean

study: $(VENV)/product
	$(BIN)/ridgeline run 8b-h200

test: $(VENV)/tests
	$(BIN)/pytest -n 2

# fails below 90 % of product lines; CONTRIBUTING.md names the rest
coverage: $(VENV)/tests
	$(BIN)/pytest -n 2 --cov --cov-report=term-missing:skip-covered

lint: $(VENV)/tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/tests
	$(BIN)/mypy

guide: $(VENV)/product
	$(BIN)/python -m benchmarks.guide

# DATA: a folder with kernels/*.csv and serving.csv.gz, which are not part of the repository
bench: $(VENV)/tests
	@test -d "$(DATA)/kernels" || { echo "make bench DATA=DIR: DIR holds kernels/ and serving.csv.gz" >&2; exit 2; }
	mkdir -p $(RESULTS)
	$(BIN)/python benchmarks/kernels.py $(DATA)/kernels --json > $(RESULTS)/kernels.json
	$(BIN)/python benchmarks/shape_gain.py $(DATA)/kernels --json > $(RESULTS)/shape_gain.json
	$(BIN)/python benchmarks/serving.py $(DATA)/serving.csv.gz --json > $(RESULTS)/serving.json
	$(BIN)/python benchmarks/elsewhere.py $(DATA)/serving.csv.gz --json > $(RESULTS)/elsewhere.json
	$(BIN)/python benchmarks/published.py $(DATA)/serving.csv.gz --json > $(RESULTS)/published.json
	$(BIN)/python benchmarks/speed.py --json > $(RESULTS)/speed.json
	$(BIN)/python -m benchmarks.speed_profile --json > $(RESULTS)/profile.json
	$(BIN)/python benchmarks/search.py --json --dask > $(RESULTS)/search.json
	$(BIN)/python benchmarks/page.py --json > $(RESULTS)/page.json
	$(BIN)/python -m benchmarks.kill --json > $(RESULTS)/kill.json
	$(BIN)/python -m benchmarks.scale --json > $(RESULTS)/scale.json
	$(BIN)/python benchmarks/tables.py $(RESULTS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/product: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/tests: $(VENV)/product
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
