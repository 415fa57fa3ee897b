"""Links lead somewhere, and the navigation has every page for users. `make docs` checks the site's own links."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import gangclient

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for part in (".github", "docs", "e2e") for page in ROOT.glob(f"{part}/**/*.md"))]
)
REPOSITORY = re.compile(r"https://github\.com/gangctl/gangctl/(?:blob|tree)/main/")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)|\bsrc(?:set)?=\"([^\"\s]+)", re.MULTILINE)
PATH = re.compile(
    r"`((?:bench|charts|client|containers|crds|docs|e2e|examples|gangctl|sidecar|tests)/[\w*-][\w./*-]*)`"
)
SNIPPET = re.compile(r"^```python$(.*?)^```$", re.MULTILINE | re.DOTALL)
USED = re.compile(r"(?<![\w./-])gangclient\.(\w+)")
IMPORTED = re.compile(r"^\s*(?:import|from) gangclient\.(\w+)", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _links(page: Path) -> Iterator[str]:
    for found in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        yield next(filter(None, found))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def _leads_nowhere(page: Path, link: str) -> bool:
    inside = REPOSITORY.match(link)
    if inside is None and re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link[inside.end() :].partition("#") if inside else link.partition("#")
    target = page if not path else (ROOT if inside else page.parent) / path
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in _anchors(target))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [link for link in _links(page) if _leads_nowhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not any(ROOT.glob(path))] == []


@pytest.mark.parametrize("page", [page for page in PAGES if DOCS in page.parents], ids=_name)
def test_a_page_of_the_site_links_to_other_files_by_their_address_on_github(page: Path) -> None:
    """A relative link that leaves docs/ works on GitHub only."""
    relative = [link for link in _links(page) if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in relative if not (page.parent / link).resolve().is_relative_to(DOCS)] == []


@pytest.mark.parametrize("picture", sorted(DOCS.glob("pictures/*.svg")), ids=_name)
def test_a_picture_is_named_and_loads_nothing_from_elsewhere(picture: Path) -> None:
    made = ET.fromstring(picture.read_text(encoding="utf-8"))
    assert made.findtext("{http://www.w3.org/2000/svg}title")
    assert set(re.findall(r"https?://[^\s\"']+", picture.read_text(encoding="utf-8"))) == {"http://www.w3.org/2000/svg"}


def test_the_navigation_has_every_page_once_but_those_for_contributors() -> None:
    def pages(entry: object) -> Iterator[str]:
        match entry:
            case str():
                yield entry
            case dict():
                yield from (page for value in entry.values() for page in pages(value))
            case list():
                yield from (page for value in entry for page in pages(value))

    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    every = {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")}
    for_contributors = {page for page in every if page.startswith("decisions/") or page == "correctness.md"}
    assert sorted(pages(site["project"]["nav"])) == sorted(every - for_contributors)


def test_every_page_that_the_navigation_lacks_is_linked() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in DOCS.glob("**/*.md")
        for link in _links(page)
        if not re.match(r"[a-z]+:|#", link)
    }
    unlinked = {page for page in DOCS.glob("**/*.md") if page.resolve() not in linked}
    assert unlinked <= {DOCS / "index.md"}


def test_the_index_of_decisions_has_each_record_which_has_a_date_and_its_sections() -> None:
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- \[(\d+)\. (.+)\]\((\d{4}-[a-z0-9-]+\.md)\)$", index, re.MULTILINE)
    records = sorted(page for page in DOCS.glob("decisions/*.md") if page.name != "index.md")
    assert [row[2] for row in rows] == [page.name for page in records]
    for number, title, name in rows:
        text = (DOCS / "decisions" / name).read_text(encoding="utf-8")
        assert name.startswith(f"{int(number):04d}-")
        assert text.startswith(f"# {number}. {title}\n\n")
        assert re.search(r"^- Date: \d{4}-\d\d-\d\d\n(- Amend(s|ed by) |\n)", text, re.MULTILINE)
        sections = " ".join(re.findall("^## (.+)$", text, re.MULTILINE))
        assert re.fullmatch("Context Decision( Alternatives)?( Consequences)?", sections)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_what_a_snippet_uses_of_gangclient_is_there_and_imported(page: Path) -> None:
    for snippet in SNIPPET.findall(page.read_text(encoding="utf-8")):
        imported = {f"gangclient.{name}" for name in IMPORTED.findall(snippet)}
        for name in USED.findall(snippet):
            is_module = importlib.util.find_spec(f"gangclient.{name}") is not None
            assert not is_module or f"gangclient.{name}" in imported, f"{page}: import gangclient.{name}"
            assert is_module or hasattr(gangclient, name), f"{page}: gangclient.{name}"
