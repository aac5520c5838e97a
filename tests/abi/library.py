"""Compares the functions and structs that the built library was compiled with, as abidw reads them from its debug information, with
the stored baseline. Exit status 77 where abidw or the debug information is absent.

    library.py LIBRARY BASELINE"""
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

sys.dont_write_bytecode = True
import baseline


def corpus_of(library):
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        subprocess.run(["abidw", "--no-show-locs", "--no-corpus-path", "--out-file", file.name, library], check=True)
        return tree.parse(file.name).getroot()


class Types:
    """Names of types by the ids of abidw."""

    def __init__(self, corpus):
        self.by_id = {element.get("id"): element for element in corpus.iter() if element.get("id")}

    def name(self, identity):
        element = self.by_id[identity]
        if element.tag == "pointer-type-def":
            target = self.by_id[element.get("type-id")]
            if target.tag == "function-type":
                arguments = ", ".join(self.name(p.get("type-id")) for p in target.iter("parameter"))
                result = self.name(target.find("return").get("type-id"))
                return f"{result}{'' if result.endswith('*') else ' '}(*)({arguments})"
            inner = self.name(element.get("type-id"))
            return inner + ("*" if inner.endswith("*") else " *")
        if element.tag == "qualified-type-def":
            inner = self.name(element.get("type-id"))
            if element.get("const") != "yes":
                return inner
            return inner + "const" if inner.endswith("*") else f"const {inner}"
        return element.get("name")

    def signature(self, function):
        arguments = [self.name(p.get("type-id")) for p in function.iter("parameter")]
        return baseline.headers.signature((self.name(function.find("return").get("type-id")), arguments))


def describe(corpus, exported, wanted):
    """(kind, name) -> what the library says, for the names of the baseline."""
    types, lines = Types(corpus), {}
    for element in corpus.iter("function-decl"):
        name = element.get("name")
        if ("function", name) in wanted:
            lines["function", name] = f"{exported.get(name, '-')} {types.signature(element)}"
    for element in corpus.iter("class-decl"):
        name = element.get("name")
        if ("struct", name) not in wanted or element.get("is-declaration-only") == "yes":
            continue
        lines["struct", name] = str(int(element.get("size-in-bits")) // 8)
        for member in element.iter("data-member"):
            field = member.find("var-decl")
            place = int(member.get("layout-offset-in-bits")) // 8
            lines["field", f"{name}.{field.get('name')}"] = f"{place} {types.name(field.get('type-id'))}"
    return lines


def main():
    if not shutil.which("abidw"):
        print("abidw is absent: what the library was compiled with is not compared")
        return 77
    wanted = {key: rest.replace("const void *", "void *") for key, rest in baseline.load(sys.argv[2]).items()
              if key[0] in ("function", "struct", "field")}  # abidw drops the const of void
    exported = baseline.versions(sys.argv[1])
    found = describe(corpus_of(sys.argv[1]), exported, wanted)
    if not found:
        print("no debug information: what the library was compiled with is not compared")
        return 77
    # Of functions with the same code at one address, abidw lists one: the others cannot be compared.
    wanted = {(kind, name): rest for (kind, name), rest in wanted.items() if (kind, name) in found or name not in exported}
    faults = list(baseline.breaks(wanted, found))
    for fault in faults:
        print(f"broken in the library: {fault}")
    print(f"{len(found)} functions, structs and fields of the library compared: {len(faults)} broken")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
