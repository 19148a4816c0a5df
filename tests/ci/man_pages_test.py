#!/usr/bin/env python3
"""Whether `man` has what flx.h says: man_pages_test.py HEADER PAGES

Each function of the HEADER has a page in PAGES/man3, with its arguments as they are declared and the first words of its
comment; there is no other page but flx.3, which names them all and each status, type and reduction. groff, where it is
installed, has nothing against any page, those of programs (PAGES/man1) included."""

import glob
import os
import re
import shutil
import subprocess
import sys


def plain(page):
    """The words of a page's source, without what troff does with them."""
    text = re.sub(r"^\.[A-Z]+ ?", "", page, flags=re.M).replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    return " ".join(re.sub(r"\\f[BIR]", "", text).split())


def squeezed(text):
    return re.sub(r"\s", "", text)


def main():
    header, pages = sys.argv[1:]
    if not os.path.isdir(f"{pages}/man3"):
        print("skipped: the build makes no man pages of functions, as doxygen was not installed")
        sys.exit(77)
    with open(header, encoding="utf-8") as file:
        text = file.read()
    # The comment's first line, the function's name, its arguments.
    functions = re.findall(r"((?:^///.*\n)+)FLX_API [^(]*?[ *](\w+)(\([^;]*\));", text, re.M)
    found = {}
    for path in glob.glob(f"{pages}/man3/*.3"):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)[:-2]] = plain(file.read())
    wrong = []
    if len(functions) != text.count("\nFLX_API "):
        wrong.append("a declaration of the header was not understood")
    for comment, name, arguments in functions:
        page = found.get(name, "")
        if squeezed(name + arguments) not in squeezed(page):
            wrong.append(f"{name}: no page has it as it is declared")
        words = plain(re.sub(r"^/// ?|`", "", comment, flags=re.M)).split()[:5]
        if " ".join(words) not in page:
            wrong.append(f"{name}: its page does not say: {' '.join(words)}")
        if f"{name} (3)" not in found.get("flx", ""):
            wrong.append(f"{name}: flx.3 does not name it")
    wrong += [f"{name}.3 is of no function" for name in set(found) - {name for _, name, _ in functions} - {"flx"}]
    constants = re.findall(r"^\s+(FLX_\w+) = -?\d+", text, re.M)
    wrong += [f"flx.3 does not name {name}" for name in constants if name not in found.get("flx", "")]
    if shutil.which("groff"):
        everything = sorted(glob.glob(f"{pages}/man[13]/*"))
        run = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-z", "-rLL=100n", *everything],
                             capture_output=True, text=True, timeout=60, check=False)
        if run.stderr or run.returncode != 0 or not everything:
            wrong.append(f"groff: {run.stderr}")
    else:
        print("groff is not installed, so it has not read the pages")
    for sentence in wrong:
        print(sentence)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
