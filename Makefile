# Two commands set everything up: `make book` and `make test`. Each works a second time, offline.
PYTHON ?= python3
BIN := .venv/bin
MACHINES := book/machines

.PHONY: help book series pages publish test lint bench engine install clean

help:
	@echo "make book    measure this machine quickly on the embedded model, build _build/html"
	@echo "make series  measure this machine in full (the setting of the published pages)"
	@echo "make pages   build _build/html from the samples that are there, measuring nothing"
	@echo "make publish build the book of a commit for any static host: _build/publish"
	@echo "make test    lint, types, tests, and the published notebooks replayed"
	@echo "make lint    ruff and mypy alone"
	@echo "make bench   print what the measuring itself costs, with nothing else running"
	@echo "make engine  build llama-server and its bindings (cached)"
	@echo "make clean   remove _build and caches; the samples and .venv stay"

book: engine
	@echo "== measuring, quick setting"
	$(BIN)/specdepth run --quick
	@$(MAKE) --no-print-directory pages

series: engine
	@echo "== measuring, full setting"
	$(BIN)/specdepth run
	@$(MAKE) --no-print-directory pages

pages: install
	@echo "== building the book"
	$(BIN)/specdepth book

# A page that its samples do not give is not published, whoever executed it.
publish: install
	@echo "== making every page again from its samples"
	for file in $$(git ls-files '$(MACHINES)/*/manifest.json'); do \
		$(BIN)/specdepth check "$$(dirname "$$file")" || exit 1; done
	@echo "== publishing the book"
	$(BIN)/specdepth publish

# The tests are of the built engine, whatever server a user has set.
test: lint
	@$(BIN)/python -m analysis.engines.build
	@$(MAKE) --no-print-directory .venv/.training
	@echo "== tests"
	env -u SPECDEPTH_SERVER -u SPECDEPTH_REPLAY $(BIN)/python -m pytest
	@echo "== published notebooks, replayed from their samples"
	SPECDEPTH_REPLAY=1 $(BIN)/python -m pytest -p no:cacheprovider --nbval --nbval-current-env \
		$(MACHINES)/*/*.ipynb

lint: install
	@echo "== ruff and mypy"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: engine
	@echo "== what the harness costs"
	$(BIN)/python -m tests.bench_harness
	@echo "== what the tracer costs"
	$(BIN)/python -m tests.bench_tracer
	@echo "== what adaptive measuring saves; ten minutes"
	$(BIN)/python -m tests.bench_racing
	@echo "== what the book takes"
	$(BIN)/python -m tests.bench_book

# A llama-server of one's own needs no build.
engine: install
ifdef SPECDEPTH_SERVER
	@echo "engine: using SPECDEPTH_SERVER"
else
	@$(BIN)/python -m analysis.engines.build
endif

install: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt environment.yml
	@echo "== setting up .venv; a minute or two"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq -c constraints.txt pip
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[book,dev]'
	@touch $@

# PyTorch, for the tests of the training code alone.
.venv/.training: models/requirements.txt .venv/.installed
	@echo "== what the training code needs; a minute or two, and a large download"
	$(BIN)/python -m pip install -qq -c constraints.txt -r models/requirements.txt
	@touch $@

clean:
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis book/index.ipynb \
		book/other_hardware.ipynb book/planner.ipynb book/how_it_works.ipynb \
		book/gallery.ipynb book/architecture.ipynb book/status.ipynb
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
