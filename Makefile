# make run: open Driftscope in a browser. make test: the tests. make check: lint, types and tests.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 8501
BIN := $(VENV)/bin

.PHONY: run test lint check clean

run: $(VENV)/.run
	$(BIN)/streamlit run app.py --server.port $(PORT)

test: $(VENV)/.dev
	BROWSER_PATH=$$(sh scripts/browser.sh $(BIN)) $(BIN)/pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy core pages/ui

check: lint test

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -r requirements.txt
	touch $@

$(VENV)/.dev: requirements-dev.txt requirements.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -r requirements-dev.txt
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV)
