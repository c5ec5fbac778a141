"""The two worlds and the one arrow: who imports whom, how long things are, what the README says is there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([ROOT / "app.py", *(path for folder in ("core", "pages", "scripts")
                                   for path in ROOT.glob(f"{folder}/**/*.py"))])
NUMPY_FREE = ("experiment", "fields", "rules", "tables", "presets", "vocabulary", "cost", "comparison", "placements",
              "plan", "init_scales", "wiring", "notation", "formulas", "equations", "lineage", "shapes")
TORCH_FREE = (*NUMPY_FREE, "trace", "fits", "drift", "expectations", "branch_input", "landscape", "massive",
              "token_table", "float16_range", "verdicts", "table", "settings", "database", "store", "claims", "cluster",
              "keeper", "service", "lifeline", "logs", "crew", "health", "evidence", "reach", "causes", "autopsy",
              "remedies", "difference", "gaussian_softmax", "gaussian_activation", "products",
              "mean_pattern", "tape", "mean_field", "theory", "gradient_theory", "entropy_causes",
              "softmax_row", "roles", "gradient_verdicts", "pools", "worked", "pitfalls", "formats", "variances",
              "fixed_point", "norm_casts", "headroom", "silent", "format_gap", "bench", "norm_bill", "ranking", "look",
              "outcomes", "sweep", "leak_verdicts", "batch_verdicts", "exams", "copies")

FORBIDDEN = {
    r"core/.*": {"streamlit", "plotly", "pandas", "pages", "assets"},
    r"core/(" + "|".join(TORCH_FREE) + r")\.py": {"torch", "numba"},
    r"core/(" + "|".join(NUMPY_FREE) + r")\.py": {"numpy"},
    r"pages/ui/(charts/.*|theme|picture)\.py": {"streamlit", "torch", "pathlib"},
    r"pages/ui/text\.py": {"streamlit", "torch", "core"},
    r"pages/ui/link\.py": {"streamlit", "plotly"},
    r"pages/ui/(chromium|images|replay|filming)\.py": {"streamlit"},
    r"pages/ui/.*": {"torch", "numba"},
    r"(app|pages/\w+)\.py": {"torch", "numba", "plotly"},
}


def imports(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_file_imports_only_what_its_layer_may(path):
    name = str(path.relative_to(ROOT))
    banned = set().union(*(names for pattern, names in FORBIDDEN.items() if re.fullmatch(pattern, name)))
    assert not imports(path) & banned


@pytest.mark.parametrize("path", sorted(ROOT.glob("pages/*.py")), ids=lambda path: path.name)
def test_pages_do_not_import_each_other(path):
    pages = {page.stem for page in ROOT.glob("pages/*.py")}
    tree = ast.walk(ast.parse(path.read_text()))
    modules = [node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module]
    assert not [module for module in modules if module.partition(".")[0] == "pages" and module.split(".")[1] in pages]


@pytest.mark.parametrize("module", TORCH_FREE)
def test_importing_what_the_web_server_needs_imports_neither_torch_nor_a_compiler(module):
    code = f"import core.{module}, sys; print({{'torch', 'numba'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True) \
        .stdout == "set()\n"


def test_the_core_package_is_empty():
    assert (ROOT / "core" / "__init__.py").read_text() == ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    long = [node.name for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40]
    assert long == []


def test_a_page_is_under_eighty_lines():
    assert {page.name: lines for page in ROOT.glob("pages/*.py")
            if (lines := len(page.read_text().splitlines())) >= 80} == {}


def test_the_readme_ends_with_the_file_tree_as_it_is_on_disk():
    tree = (ROOT / "README.md").read_text().rpartition("```\n")[0].rpartition("```text\n")[2]
    listed = {line.split()[0] for line in tree.splitlines() if line.strip()}
    tracked = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, text=True, check=True).stdout.split()
    assert listed == {name for name in tracked if (ROOT / name).exists()}
