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

# Flower for the tests of federated fits, in an environment of its own: it holds back rich, FastAPI
# and protobuf for all beside it. What it does not hold back it takes from .venv.
.venv-federated: pyproject.toml | .venv/test-ready
	rm -rf $@
	$(BIN)/python -m venv $@
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> $$($@/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth
	$(BIN)/python -c "import tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*extras['optional-dependencies']['federated'], sep='\n')" > $@/wanted.txt
	$@/bin/python -m pip install --quiet --requirement $@/wanted.txt || { rm -rf $@; exit 1; }
	touch $@

clean:
	rm -rf .venv .venv-federated demo docs/site dist
