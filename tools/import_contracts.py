"""A kind of contract that .importlinter asks for and import-linter has not."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

FACE = "headrace"
ENGINE = ("from headrace import _engine", "import headrace._engine")


class FaceContract(Contract):
    """No module but those outside imports names from the package itself.

    The compiled engine is not in the graph, so that an import of it looks like one of the face:
    such lines do not count.
    """

    outside = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        found = []
        for module in sorted(graph.find_modules_that_directly_import(FACE)):
            room = module.removeprefix(f"{FACE}.").split(".")[0]
            if module == FACE or room in self.outside:
                continue
            for each in graph.get_import_details(importer=module, imported=FACE):
                if each["line_contents"].split("#")[0].strip() not in ENGINE:
                    found.append(f"{module}:{each['line_number']}: {each['line_contents']}")
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for each in check.metadata["found"]:
            output.print_error(f"{each}  (import it from the module that owns it)")
