#!/usr/bin/env python3
"""Whether the recipes of ci/recipes can be read: recipes_test.py PROJECT

They are not built, as what they are for is seldom installed. Each has the version that CMakeLists.txt has, names
options that are there, and needs what ci/setup needs for a build, under the name that its own packages have."""

import ast
import os
import re
import subprocess
import sys

# Debian's package, and what Spack and conda call the same. What is needed for tests alone is in none of them.
NAMES = {
    "cmake": ("cmake", "cmake"),
    "ninja-build": ("ninja", "ninja"),
    "pkg-config": ("pkgconfig", "pkg-config"),
    "libopenmpi-dev": ("mpi", "openmpi"),
    "libucx-dev": ("ucx", "ucx"),
    "libhwloc-dev": ("hwloc", "libhwloc"),
    "libhwy-dev": ("highway", "libhwy"),
    "libsodium-dev": ("libsodium", "libsodium"),
    "libcli11-dev": ("cli11", "cli11"),
    "libfmt-dev": ("fmt", "fmt"),
    "libspdlog-dev": ("spdlog", "spdlog"),
    "nlohmann-json3-dev": ("nlohmann-json", "nlohmann_json"),
    "libpugixml-dev": ("pugixml", "pugixml"),
    "libtomlplusplus-dev": ("tomlplusplus", "tomlplusplus"),
    "libncurses-dev": ("ncurses", "ncurses"),
    "zlib1g-dev": ("zlib-api", "zlib"),
}
TESTS_ALONE = {"libgtest-dev", "libbenchmark-dev"}
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}


class Recipes:
    """The files, and what is wrong with them."""

    def __init__(self, project):
        self.project = project
        text = self.text("CMakeLists.txt")
        self.version = re.search(r"^project\(flx VERSION (\S+)", text, re.M).group(1)
        self.options = set(re.findall(r"^\s*(?:option|set)\((FLX_\w+)", text + self.text("runtime/mpi.cmake"), re.M))

    def text(self, name):
        with open(os.path.join(self.project, name), encoding="utf-8") as file:
            return file.read()

    def wrong(self):
        for name in ("spack/packages/flx/package.py", "conda/build.sh", "Containerfile"):
            for option in re.findall(r"FLX_[A-Z_]+", self.text(f"ci/recipes/{name}")):
                if option not in self.options:
                    yield f"{name}: there is no option {option}"
        yield from self.names()
        yield from self.spack()
        yield from self.conda()
        yield from self.container()

    def names(self):
        """Nothing that a build needs, which is the first list of ci/setup, is forgotten here."""
        run = subprocess.run([f"{self.project}/ci/setup", "--list"], capture_output=True, text=True, check=True)
        needed = set(re.findall(r"^(\S+-dev)\s", run.stdout.split("\nclang-format")[0], re.M)) - TESTS_ALONE
        yield from (f"recipes_test.py knows no other name of {name}" for name in sorted(needed - set(NAMES)))

    def spack(self):
        tree = ast.parse(self.text("ci/recipes/spack/packages/flx/package.py"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        said = {name: [call.args[0].value for call in calls if call.func.id == name]
                for name in ("version", "depends_on")}
        if said["version"] != [self.version]:
            yield f"package.py has the version {said['version']}, not {self.version}"
        if not any(isinstance(node, ast.ClassDef) and node.name == "Flx" for node in tree.body):
            yield "package.py has no class Flx"
        needs = {re.split("[@+]", spec)[0] for spec in said["depends_on"]}
        yield from (f"package.py does not need {name}" for name, _ in NAMES.values() if name not in needs)

    def conda(self):
        import yaml  # pylint: disable=import-outside-toplevel

        text = self.text("ci/recipes/conda/meta.yaml")
        variables = dict(re.findall(r'^{% set (\w+) = "(.*)" %}$', text, re.M))
        text = re.sub(r"^{%.*%}$", "", text, flags=re.M)
        text = re.sub(r"{{ (\w+) }}", lambda found: variables[found.group(1)], text)
        text = re.sub(r"{{ (\w+)\('(\w+)'\) }}", r"\1_\2", text)
        recipe = yaml.safe_load(text)
        if recipe["package"] != {"name": "flx", "version": self.version}:
            yield f"meta.yaml is of {recipe['package']}, not of flx {self.version}"
        needs = {str(need).split()[0] for part in ("build", "host") for need in recipe["requirements"][part]}
        yield from (f"meta.yaml does not need {name}" for _, name in NAMES.values() if name not in needs)
        source = os.path.join(self.project, "ci/recipes/conda", recipe["source"]["path"])
        if not os.path.samefile(source, self.project):
            yield f"meta.yaml takes its source from {source}"
        if subprocess.run(["bash", "-n", f"{self.project}/ci/recipes/conda/build.sh"], check=False).returncode != 0:
            yield "build.sh is no script"

    def container(self):
        text = re.sub(r"^#.*\n", "", self.text("ci/recipes/Containerfile"), flags=re.M).replace("\\\n", " ")
        lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
        yield from (f"Containerfile: {line[0]} is no instruction" for line in lines if line[0] not in INSTRUCTIONS)
        if lines[0][0] != "FROM":
            yield "Containerfile does not begin with FROM"
        for line in lines:
            if line[0] == "RUN":
                if subprocess.run(["bash", "-n", "-c", line[1]], check=False).returncode != 0:
                    yield f"Containerfile: no command: {line[1]}"
                yield from (f"Containerfile: there is no {script}" for script in re.findall(r"\bci/[\w-]+", line[1])
                            if not os.access(os.path.join(self.project, script), os.X_OK))


def main():
    try:
        import yaml  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        print("skipped: Python has no module yaml; ci/setup --packages installs python3-yaml")
        sys.exit(77)
    wrong = list(Recipes(sys.argv[1]).wrong())
    for sentence in wrong:
        print(sentence)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
