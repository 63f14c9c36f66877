"""The page is one small file that needs nothing else, the same each time, and safe whatever names descriptions have."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import simulator
from simulator.report.html import html_report
from tests.results.predictions import from_catalogue

VOID = {"meta", "br", "use", "image", "path", "rect"}


class Balanced(HTMLParser):
    """Checks that tags close in order; collects links to other files and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser


def test_it_is_one_small_file_without_scripts_or_links_to_others() -> None:
    page = html_report(from_catalogue())
    assert len(page.encode()) < 1_000_000
    found = parsed(page)
    assert found.scripts == 0
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in found.references)


def test_it_holds_the_numbers_and_the_picture() -> None:
    page = html_report(from_catalogue())
    for wanted in (
        "gpt3-175b on selene, 64 GPUs",
        "step time",
        "Where the time goes",
        "Memory",
        "a100-sxm-80",
    ):
        assert wanted in page
    assert page.count("<svg") >= 2
    assert "NVIDIA A100 datasheet" in page  # sources of the numbers


def test_equal_predictions_give_equal_bytes_without_dates() -> None:
    pages = [html_report(from_catalogue()) for _ in range(2)]
    assert pages[0] == pages[1]
    assert not re.search(r"dc:date|Created with|20\d\d-\d\d-\d\dT", pages[0])


def test_names_from_descriptions_are_escaped() -> None:
    evil = "<script>alert('x')</script>&\""
    cluster = simulator.load_cluster(
        "selene", gpus=8, overrides={"name": f"'{evil.replace(chr(39), chr(39) * 2)}'"}
    )
    workload = simulator.load_workload("megatron-22b")
    assert cluster.name == evil
    page = html_report(simulator.simulate(cluster, workload))
    assert "<script" not in page and "&lt;script&gt;" in page
    assert parsed(page).scripts == 0


def test_a_plan_that_does_not_fit_shows_its_remedies() -> None:
    page = html_report(from_catalogue(pp=4))
    assert "does not fit" in page and "--set plan." in page
