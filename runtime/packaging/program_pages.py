#!/usr/bin/env python3
"""What a person's shell and `man` have to know of a program, made from what it prints with --help.

    program_pages.py PROGRAM VERSION FOLDER

writes FOLDER/man1/NAME.1 and completions of the program's options for three shells: FOLDER/bash/NAME,
FOLDER/zsh/_NAME and FOLDER/fish/NAME.fish."""

import os
import sys

import completions
import program_help
import troff


def facts(option):
    """Sentences of what else is known of an option."""
    if option.default:
        yield f"The default is {troff.bold(option.default)}."
    if option.least_most:
        yield "It may be from {} to {}.".format(*map(troff.escaped, option.least_most))
    if option.choices and not option.text.startswith(option.choices[0] + ","):
        *others, last = map(troff.bold, option.choices)
        yield f"It may be {', '.join(others)} or {last}."
    if option.excludes:
        yield f"It does not go with {', '.join(map(troff.bold, option.excludes))}."
    if option.needs:
        yield f"It goes with {', '.join(map(troff.bold, option.needs))} only."


def sentence(text):
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def entry(option):
    names = ", ".join(map(troff.bold, option.names))
    head = f"{names} {troff.italic(option.value)}" if names and option.value else names or troff.italic(option.value)
    return [".TP", head, " ".join([troff.escaped(sentence(option.text)), *facts(option)]).strip()]


def manual(found, version):
    body = [("SYNOPSIS", [troff.bold(found.usage)])]
    remarks = [".PP", *found.remarks] if found.remarks else []
    body.append(("DESCRIPTION", [line if line == ".PP" else troff.escaped(line) for line in found.purpose + remarks]))
    if found.arguments:
        body.append(("ARGUMENTS", [line for argument in found.arguments for line in entry(argument)]))
    body.append(("OPTIONS", [line for option in found.options for line in entry(option)]))
    knobs = "Variables whose names begin with FLX_ set the knobs of FLX. The command"
    body.append(("ENVIRONMENT", [knobs, troff.bold("flx_info --knobs"), "lists them, with the value that each has."]))
    body.append(("SEE ALSO", [".BR mpirun (1),", ".BR flx (3)"]))
    return troff.page(found.program, 1, version, found.summary(), body)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    program, version, folder = sys.argv[1:]
    found = program_help.of_program(program)
    name = found.program
    write(f"{folder}/man1/{name}.1", manual(found, version))
    write(f"{folder}/bash/{name}", completions.bash(found))
    write(f"{folder}/zsh/_{name}", completions.zsh(found))
    write(f"{folder}/fish/{name}.fish", completions.fish(found))


if __name__ == "__main__":
    main()
