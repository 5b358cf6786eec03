# make demo and make test do all the set-up; both make .venv the first time.
# The constraint keeps pip from choosing a CUDA build of torch. CONSTRAINTS=oldest.txt installs the
# oldest versions that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
export PIP_CONSTRAINT := $(CURDIR)/$(CONSTRAINTS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN := .venv/Scripts
else
PYTHON ?= python3
BIN := .venv/bin
endif

.PHONY: demo test check docs dist clean

demo: .venv/demo-ready
	$(BIN)/unmix demo

test: .venv/test-ready check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/test-ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Warnings are errors: a link that leads nowhere, a page that nothing links to.
docs: .venv/docs-ready
	$(BIN)/sphinx-build -E -W --keep-going -q docs docs/site
	@echo "open docs/site/index.html"

# The wheel and the sdist in dist/, installed with all they need and tried in a new environment.
dist: .venv/test-ready
	$(BIN)/python tests/check_dist.py dist

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv

.venv/demo-ready: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/test-ready: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ .venv/demo-ready .venv/docs-ready

.venv/docs-ready: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@ .venv/demo-ready

clean:
	rm -rf .venv demo docs/site dist
