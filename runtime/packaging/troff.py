"""Text as man pages write it."""


def escaped(text):
    """One line, in which no character has a meaning of its own."""
    return guarded(text.replace("\\", "\\e").replace("-", "\\-"))


def guarded(text):
    """A line that begins with a dot would be a request, and so would one that begins with an apostrophe."""
    return "\\&" + text if text.startswith((".", "'")) else text


def bold(text):
    return f"\\fB{escaped(text)}\\fR"


def italic(text):
    return f"\\fI{escaped(text)}\\fR"


def page(name, section, version, summary, body):
    """A whole page. BODY: pairs of a heading and its lines, which are escaped already."""
    lines = [f'.TH {escaped(name)} {section} "" "FLX {version}" "FLX"', ".nh", ".ad l"]
    for heading, content in [("NAME", [f"{escaped(name)} \\- {escaped(summary)}"]), *body]:
        lines += [f".SH {heading}", *content]
    return "\n".join(lines) + "\n"
