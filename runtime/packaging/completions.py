"""A program's options for the three shells, of what its --help says (program_help.py). Each shell offers the options,
the values of those that have a list of them, files where a file is named, and for `flx-run` the other program's command
line."""

import shlex


def function_of(found):
    return "_" + found.program.replace("-", "_")


def with_value(found):
    return [name for option in found.options if option.value for name in option.names]


def names_file(found):
    """Whether an argument, not an option, is a file."""
    return any(argument.takes_file() for argument in found.arguments)


BASH_HEAD = """# bash completion for {program}: what its --help lists
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
    # `--option=value` comes as three words.
    [ "$word" != = ] || word=
    [ "$before" != = ] || before=${{COMP_WORDS[COMP_CWORD - 2]}}
    COMPREPLY=()
"""
# The first word that is no option, nor the value of one, begins the other command.
BASH_COMMAND = """    local at=1
    while [ $at -lt "$COMP_CWORD" ]; do
        case ${{COMP_WORDS[at]}} in
        --) at=$((at + 1)); break ;;
        {with_value}) at=$((at + 2)) ;;
        -*) at=$((at + 1)) ;;
        *) break ;;
        esac
    done
    if [ $at -lt "$COMP_CWORD" ] || [ "${{COMP_WORDS[at - 1]}}" = -- ]; then
        if declare -F _command_offset >/dev/null; then
            _command_offset $at
        else
            compopt -o default
        fi
        return
    fi
"""


def bash(found):
    def offer(words):
        return f"""mapfile -t COMPREPLY < <(compgen -W {shlex.quote(" ".join(words))} -- "$word")"""

    text = BASH_HEAD.format(program=found.program, function=function_of(found))
    if found.runs_command():
        text += BASH_COMMAND.format(with_value="|".join(with_value(found)) or "=")
    cases = []
    for option in found.options:
        if option.choices:
            cases.append(f"    {'|'.join(option.names)}) {offer(option.choices)}; return ;;")
        elif option.takes_file():
            cases.append(f"    {'|'.join(option.names)}) compopt -o default; return ;;")
        elif option.value:
            cases.append(f"    {'|'.join(option.names)}) return ;;")
    if cases:
        text += "\n".join(["    case $before in", *cases, "    esac", ""])
    names = [name for option in found.options for name in option.names]
    others = [choice for argument in found.arguments for choice in argument.choices]
    if found.runs_command():
        text += f"""    case $word in
    -*) {offer(names)} ;;
    *) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
    esac
"""
    else:
        text += f"""    case $word in
    -*) {offer(names)} ;;
    *) {"compopt -o default" if names_file(found) else offer(others)} ;;
    esac
"""
    return text + f"}}\ncomplete -F {function_of(found)} {found.program}\n"


def zsh(found):
    def plain(text):
        """Brackets, colons and backslashes have a meaning in what `_arguments` reads."""
        return "".join("\\" + char if char in "[]:\\" else char for char in text)

    def values(option):
        if option.choices:
            return f"({' '.join(option.choices)})"
        return "_files" if option.takes_file() else " "

    specs = []
    for option in found.options:
        others = " ".join([*(option.names if len(option.names) > 1 else []), *option.excludes])
        for name in option.names:
            spec = (f"({others})" if others else "") + f"{name}[{plain(option.text)}]"
            specs.append(spec + (f":{option.value}:{values(option)}" if option.value else ""))
    for argument in found.arguments:
        specs.append(f":{argument.value}:{values(argument)}")
    if found.runs_command():
        specs += ["(-):program:_command_names -e", "*::argument:_normal"]
    quoted = " \\\n    ".join(shlex.quote(spec) for spec in specs)
    return f"#compdef {found.program}\n_arguments \\\n    {quoted}\n"


def fish(found):
    def plain(text):
        """Within single quotes of fish, where only these two have a meaning."""
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [] if names_file(found) else [f"complete -c {found.program} -f"]
    for option in found.options:
        words = [f"complete -c {found.program}"]
        words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
        if option.choices:
            words.append(f"-x -a {plain(' '.join(option.choices))}")
        elif option.value:
            words.append("-r -F" if option.takes_file() else "-x")
        lines.append(" ".join([*words, "-d", plain(option.text)]))
    for argument in found.arguments:
        if argument.choices:
            lines.append(f"complete -c {found.program} -a {plain(' '.join(argument.choices))}")
    if found.runs_command():
        skip = " ".join(with_value(found))
        lines.append(f"complete -c {found.program} -x -a '(__fish_complete_subcommand {skip})'")
    return "\n".join(lines) + "\n"
