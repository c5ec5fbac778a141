# make run: open Driftscope in a browser. make test: the tests. make check: lint, types and tests.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV ?= .venv
PORT ?= 8501
BIN := $(VENV)/bin

.PHONY: run test lint check clean

run: $(VENV)/.run
	$(BIN)/streamlit run app.py --server.port $(PORT)

test: $(VENV)/.dev
	sh scripts/services.sh
	path=$$(sh scripts/browser.sh $(BIN)) && BROWSER_PATH=$$path $(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy core pages/ui

check: lint test

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Driftscope needs Python 3.11 or newer, and $(PYTHON) is not; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -r requirements.txt
	$(BIN)/python -c 'import core.recorder'  # compiles the loops over entries now, not while the first visitor waits
	touch $@

$(VENV)/.dev: requirements-dev.txt requirements.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -r requirements-dev.txt
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV)
