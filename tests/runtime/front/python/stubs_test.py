"""The type stubs name what the package has, and nothing else; arguments have the same names."""

import ast
import pathlib
import unittest

import flx


def names_of(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node


class Stubs(unittest.TestCase):
    def setUp(self):
        stub = pathlib.Path(flx.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
        self.stub = dict(names_of(ast.parse(stub).body))

    def test_the_package(self):
        public = {name for name in self.stub if not name.startswith("_")}
        self.assertEqual(public, set(flx.__all__))

    def test_methods_and_their_arguments(self):
        for name in ("Communicator", "Request"):
            declared = dict(names_of(self.stub[name].body))
            there = {method for method in vars(getattr(flx, name)) if not method.startswith("_")}
            self.assertEqual({method for method in declared if not method.startswith("_")}, there)
            for method, node in declared.items():
                text = getattr(getattr(flx, name), method).__doc__ or ""
                for argument in node.args.args[1:] + node.args.kwonlyargs:
                    if method.startswith("_") or not text.startswith(method):
                        continue
                    self.assertIn(f"{argument.arg}:", text, method)


if __name__ == "__main__":
    unittest.main(verbosity=0)
