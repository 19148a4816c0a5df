#!/usr/bin/env python3
"""flx_report as a whole, and its pages in chromium where there is one: report_browser_test.py FLX_REPORT"""

import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import chromium
import report_trace

REPORT = sys.argv[1]
WIDTHS = (390, 1280)


def report(*options, code=0):
    run = subprocess.run([REPORT, *options], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, f"flx_report {' '.join(options)} ended with {run.returncode}: {run.stderr}"
    return run


def make(folder):
    """A trace and a page of each kind; the pages' names."""
    results = os.path.join(folder, "bench.json")
    with open(results, "w", encoding="utf-8") as file:
        report_trace.bench(file)
    pages = {}
    for kind, write in report_trace.KINDS.items():
        trace = os.path.join(folder, kind + ".json")
        with open(trace, "w+", encoding="utf-8") as file:
            write(file, *([100_000] if kind == "large" else []))
        pages[kind] = os.path.join(folder, kind + ".html")
        printed = report("--bench", results, trace)
        assert printed.stdout.strip() == pages[kind] and not printed.stderr, printed
        assert os.path.getsize(pages[kind]) < 600_000, kind
    assert not [name for name in os.listdir(folder) if name.endswith(".new")]
    return pages


def refuse(folder):
    broken = os.path.join(folder, "broken.json")
    with open(os.path.join(folder, "one.json"), encoding="utf-8") as file:
        lines = file.readlines()
    lines[4] = "{broken\n"
    with open(broken, "w", encoding="utf-8") as file:
        file.writelines(lines)
    page = os.path.join(folder, "other.html")
    usual = os.path.join(folder, "usual.json")
    for options, sentence in (
        ([broken], f"flx_report: {broken}:5: this is no event"),
        ([usual, "--bench", usual], f"flx_report: {usual}:1: these are no results"),
        ([usual, "--bench", broken], f"flx_report: {broken}:5: this is no JSON"),
        ([os.path.join(folder, "nothing.json")], "cannot read it: No such file"),
        ([folder], "cannot read it: Is a directory"),
        ([usual, "--out", os.path.join(folder, "no", "such", "page")], "cannot write it: No such file"),
    ):
        run = report(*options, *(["--out", page] if "--out" not in options else []), code=1)
        assert sentence in run.stderr, (options, run.stderr)
    assert not os.path.exists(page)
    assert subprocess.run([REPORT], capture_output=True, check=False).returncode not in (0, 1)


# What is wider than the page, but for what scrolls by itself and what is only there for readers of screens.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(each =>
    !each.closest('.scroll > *, svg, .skip, .unseen, .readout') &&
    each.getBoundingClientRect().right > innerWidth + 0.5 &&
    getComputedStyle(each).display !== 'none').map(each => each.tagName + '.' + each.className).slice(0, 5)"""

# The least contrast of texts with what is beneath them (WCAG 2.1, 1.4.3), of those that a color lies behind.
CONTRAST = """(() => {
  const light = color => {
    const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let least = [21, ''];
  const all = 'p, small, th, td, h1, h2, h3, a, li, dt, dd, caption, figcaption, summary, span';
  const clear = each => /rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(each).backgroundColor);
  for (const each of document.querySelectorAll(all)) {
    if (!each.textContent.trim() || each.closest('[aria-hidden] i, .cursor, .heat')) continue;
    let under = each;
    while (under && clear(under)) under = under.parentElement;
    const one = light(getComputedStyle(each).color);
    const two = light(getComputedStyle(under ?? document.body).backgroundColor);
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < least[0]) least = [ratio, each.tagName + '.' + each.className + ': ' + each.textContent.slice(0, 30)];
  }
  return least;
})()"""


def look(page, kind, path, width, scheme):
    page.said.clear()
    page.open(path, width, 900, scheme)
    where = (kind, width, scheme)
    assert page.value("document.documentElement.scrollWidth") <= width, where
    assert page.value(TOO_WIDE) == [], (where, page.value(TOO_WIDE))
    assert page.value("document.querySelectorAll('section h2').length") == 6, where
    ratio, text = page.value(CONTRAST)
    assert ratio >= 4.5, (where, ratio, text)
    background = page.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert (sum(background) < 200) == (scheme == "dark"), (where, background)
    # All that can be opened is opened, all that sorts is sorted.
    page.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.value("document.querySelectorAll('th button').forEach(each => each.click())")
    assert page.value("document.documentElement.scrollWidth") <= width, where
    assert page.said == [], (where, page.said)


def use_keyboard(page, path):
    """What a person without a mouse does, and what one who hears the page is told."""
    page.open(path, 390, 900, "light")
    page.press("Tab", number=9)
    assert page.value("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(400):
        page.press("Tab", number=9)
        kind = page.value(
            "[document.activeElement.tagName + '.' + document.activeElement.className, "
            "getComputedStyle(document.activeElement).outlineStyle, "
            "document.activeElement.getBoundingClientRect().width > 0]"
        )
        if kind[0].startswith("BODY"):
            break
        assert kind[1] != "none" and kind[2], f"focus is not seen on {kind[0]}"
        reached.add(kind[0])
    for expected in ("A.", "BUTTON.", "DIV.scroll", "DIV.cursor on", "SUMMARY."):
        assert expected in reached, (expected, reached)

    page.value("document.querySelector('.cursor').focus()")
    first = page.value("document.querySelector('.cursor').getAttribute('aria-valuetext')")
    page.press("ArrowRight", number=39)
    then = page.value("document.querySelector('.cursor').getAttribute('aria-valuetext')")
    assert first != then and "in FLX" in then, (first, then)
    assert page.value("document.querySelector('.readout').textContent") == then
    page.press("End", number=35)
    cursor = page.value("[...'now max'.split(' ')].map(name => "
                        "document.querySelector('.cursor').getAttribute('aria-value' + name))")
    assert cursor[0] == cursor[1], cursor

    # A column of numbers sorts from the largest down, then up.
    column = "document.querySelectorAll('#calls table')[0].tHead.rows[0].cells[3]"
    values = ("[...document.querySelectorAll('#calls table')[0].tBodies[0].rows]"
              ".map(row => Number(row.cells[3].dataset.v))")
    page.value(f"{column}.querySelector('button').focus()")
    page.press("Enter", text="\r", number=13)
    down = page.value(values)
    assert down == sorted(down, reverse=True) and page.value(f"{column}.getAttribute('aria-sort')") == "descending"
    page.value(f"{column}.querySelector('button').click()")
    assert page.value(values) == sorted(down)

    tree = page.ask("Accessibility.getFullAXTree")["nodes"]
    role_of = lambda node: node.get("role", {}).get("value")
    name_of = lambda node: node.get("name", {}).get("value", "")
    for role in ("table", "image", "slider", "region", "navigation", "main"):
        named = [node for node in tree if role_of(node) == role and not node.get("ignored")]
        assert named, role
        assert all(name_of(node) or role == "main" for node in named), (role, named[0])
    for role in ("rowheader", "columnheader"):
        assert any(role_of(node) == role for node in tree), role


def main():
    with tempfile.TemporaryDirectory() as folder:
        pages = make(folder)
        refuse(folder)
        print("pages are made, what is wrong is refused")
        program = chromium.find()
        if program is None:
            print("skipped: chromium is missing")
            sys.exit(77)
        with chromium.Page(program) as page:
            for kind, path in pages.items():
                for width in WIDTHS:
                    for scheme in "light", "dark":
                        look(page, kind, path, width, scheme)
            use_keyboard(page, pages["usual"])
            page.open(pages["usual"], 390, 900, "light", scripts=False)
            assert page.said == [], page.said
        print(f"{len(pages)} pages fit at {' and '.join(map(str, WIDTHS))} pixels, light and dark")


if __name__ == "__main__":
    main()
