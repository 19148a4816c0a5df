#!/usr/bin/env python3
"""Man pages of the functions of flx.h, made from the comments that stand there.

    function_pages.py DOXYGEN PROJECT VERSION FOLDER

has Doxygen read the public headers, as ci/docs does, and writes FOLDER/man3/NAME.3 for each function and
FOLDER/man3/flx.3 for all that they have in common: conventions, types, and a list of the functions."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

import troff

HEADERS = [".B #include <flx.h>", ".PP"]
# An identifier of FLX's that is a function has a page of its own.
FUNCTION = re.compile(r"\bflx_\w+\b")


def read_comments(doxygen, project):
    """Doxygen's XML of flx.h and of the structs in it. That comments are complete is for ci/docs to say."""
    with open(os.path.join(project, "Doxyfile"), encoding="utf-8") as file:
        settings = file.read()
    with tempfile.TemporaryDirectory() as out:
        settings += f"\nOUTPUT_DIRECTORY = {out}\nGENERATE_HTML = NO\nGENERATE_XML = YES\nXML_PROGRAMLISTING = NO\n"
        settings += "WARNINGS = NO\nWARN_AS_ERROR = NO\n"
        subprocess.run([doxygen, "-"], input=settings, cwd=project, text=True, check=True)
        header = tree.parse(f"{out}/xml/flx_8h.xml").getroot().find("compounddef")
        structs = [tree.parse(f"{out}/xml/{ref.get('refid')}.xml").getroot().find("compounddef")
                   for ref in header.findall("innerclass")]
    return header, structs


def inline(element):
    """The text of an element, with code in bold."""
    text = troff.escaped(" ".join((element.text or "").split("\n")))
    for child in element:
        if child.tag == "computeroutput":
            text += troff.bold("".join(child.itertext()))
        elif child.tag not in ("itemizedlist", "orderedlist"):
            text += inline(child)
        text += troff.escaped(" ".join((child.tail or "").split("\n")))
    return text


def paragraphs(*elements):
    """Lines of troff, of descriptions one after the other. Doxygen makes a paragraph of the first sentence, which
    belongs to what follows it."""
    texts, lists = [], []
    for para in (para for element in elements if element is not None for para in element.findall("para")):
        if text := inline(para).strip():
            texts.append(troff.guarded(text))
            lists.append([])
        for item in para.findall("itemizedlist/listitem"):
            lists[-1] += [".IP • 2", troff.guarded(inline(item.find("para")).strip())]
    lines = []
    for at, (text, items) in enumerate(zip(texts, lists)):
        lines += [*([".PP"] if at > 1 or at == 1 and lists[0] else []), text, *items]
    return lines


def described(element):
    return paragraphs(element.find("briefdescription"), element.find("detaileddescription"))


def plain(element):
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def prototype(function):
    """One parameter a line, as in the section 3 of other libraries."""
    head = plain(function.find("type"))
    head += "" if head.endswith("*") else " "
    head += plain(function.find("name")) + "("
    parameters = []
    for part in plain_arguments(function.find("argsstring")):
        found = re.match(r"(.*?)(\w+)$", part)
        parameters.append(troff.bold(found.group(1)) + troff.italic(found.group(2)) if found and found.group(1)
                          else troff.bold(part))
    lines = [troff.bold(head) + parameters[0]]
    margin = " " * min(len(head), 8)
    for parameter in parameters[1:]:
        lines[-1] += troff.bold(",")
        lines.append(margin + parameter)
    lines[-1] += troff.bold(");")
    return [".nf", *map(troff.guarded, lines), ".fi"]


def plain_arguments(element):
    """The parameters, cut at commas that stand in no inner parentheses."""
    text = plain(element)[1:-1].replace("(*", " (*")
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def summary(function, known):
    """The first sentence in a few words, as the index of man pages has it."""
    text = re.split(r"\. |; |, e\.g", plain(function.find("briefdescription")).rstrip(". "))[0]
    for cut in (r" \([^()]*\)", r":.*", r",.*"):
        if len(text) > 100:
            text = re.sub(cut, "", text)
    return text if text.split(" ")[0] in known else text[:1].lower() + text[1:]


def see_also(function, known):
    """The functions that its comment names, and those of other forms of the same call."""
    name = plain(function.find("name"))
    text = plain(function.find("briefdescription")) + plain(function.find("detaileddescription"))
    kernel = re.sub(r"_init$|_on_stream$", "", name.removeprefix("flx_"))
    kernel = kernel[1:] if f"flx_{kernel[1:]}" in known else kernel
    forms = [f"flx_{kernel}", f"flx_i{kernel}", f"flx_{kernel}_init", f"flx_{kernel}_on_stream"]
    found = [other for other in dict.fromkeys(FUNCTION.findall(text) + forms) if other in known and other != name]
    return [f".BR {other} (3)," for other in found] + [".BR flx (3)"]


def returned(function):
    if plain(function.find("type")) != "flx_status_t":
        return []
    return [("RETURN VALUE", [
        troff.bold("FLX_SUCCESS") + ", or what went wrong, which is listed in", ".BR flx (3).", "The function",
        ".BR flx_last_error (3)", "has the sentence that says why."])]


def function_page(function, section, version, known):
    name = plain(function.find("name"))
    body = [("LIBRARY", ["FLX, collectives over every link at once", "(" + troff.bold("-lflx") + ")"]),
            ("SYNOPSIS", HEADERS + prototype(function)),
            ("DESCRIPTION", described(function))]
    common = paragraphs(section.find("description"))
    if common:
        heading = troff.escaped(section.findtext("header").upper())
        body.append((heading, common))
    body += returned(function)
    body.append(("SEE ALSO", see_also(function, known)))
    return troff.page(name, 3, version, summary(function, known), body)


def members(items, value):
    """A list of names, each with what its comment says."""
    lines = []
    for item in items:
        lines += [".TP", value(item), *(described(item) or ["\\&"])]
    return lines


def types(header, structs):
    """Enums, structs, handles and constants."""
    lines = []
    for enum in header.findall(".//memberdef[@kind='enum']"):
        lines += [".SS enum " + troff.escaped(plain(enum.find("name"))), *described(enum)]
        lines += members(enum.findall("enumvalue"), lambda value: troff.bold(
            f"{plain(value.find('name'))} {plain(value.find('initializer'))}"))
    for struct in structs:
        lines += [".SS struct " + troff.escaped(plain(struct.find("compoundname"))), *described(struct)]
        lines += members(struct.findall(".//memberdef"), lambda member: troff.bold(
            f"{plain(member.find('type'))} {plain(member.find('name'))}{plain(member.find('argsstring'))}"
            .replace("* ", "*")))
    lines += [".SS Other types and constants"]
    shown = {plain(item.find("name")) + "_t" for item in header.findall(".//memberdef[@kind='enum']")}
    shown |= {plain(struct.find("compoundname")) + "_t" for struct in structs}
    others = [item for kind in ("typedef", "define") for item in header.findall(f".//memberdef[@kind='{kind}']")
              if described(item) and plain(item.find("name")) not in shown]
    return lines + members(others, lambda item: troff.bold(plain(item.find("name"))))


def overview(header, structs, sections, version):
    listed = []
    for section in sections:
        names = [plain(function.find("name")) for function in section.findall("memberdef[@kind='function']")]
        listed += [".SS " + troff.escaped(section.findtext("header")), *paragraphs(section.find("description")), ".PP"]
        listed += [f".BR {troff.escaped(name)} (3)," for name in names[:-1]] + [f".BR {troff.escaped(names[-1])} (3)"]
    body = [("LIBRARY", ["FLX, collectives over every link at once", "(" + troff.bold("-lflx") + ")"]),
            ("SYNOPSIS", [HEADERS[0]]),
            ("DESCRIPTION", described(header)),
            ("FUNCTIONS", listed),
            ("TYPES", types(header, structs)),
            ("SEE ALSO", [".BR flx\\-run (1),", ".BR flx_info (1),", ".BR flx_perf (1),", ".BR mpirun (1)"])]
    return troff.page("flx", 3, version, "collectives for programs started with mpirun, over every link at once", body)


def main():
    doxygen, project, version, folder = sys.argv[1:]
    header, structs = read_comments(doxygen, project)
    sections = [section for section in header.findall("sectiondef") if section.find("header") is not None]
    sections.sort(key=lambda section: int(section.find("memberdef/location").get("line")))
    functions = {plain(function.find("name")): (function, section)
                 for section in sections for function in section.findall("memberdef[@kind='function']")}
    pages = {"flx": overview(header, structs, sections, version)}
    for name, (function, section) in functions.items():
        pages[name] = function_page(function, section, version, functions)
    # A function that is gone leaves no page.
    shutil.rmtree(f"{folder}/man3", ignore_errors=True)
    os.makedirs(f"{folder}/man3")
    for name, text in pages.items():
        with open(f"{folder}/man3/{name}.3", "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
