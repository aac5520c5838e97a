"""What the public headers declare, read as text after the preprocessor and confirmed by the compiler.

`read(include, compiler)` gives an `Interface`; the baseline beside this file and tests/ffi/test_declarations.py use it."""
import os
import re
import subprocess
import tempfile


class Interface:
    """functions: name -> (result, [argument types]); structs: name -> [(field, type)]; constants, handles: [name]; types: name -> type.
    measure() adds numbers: constant -> value, sizes: struct -> bytes, places: struct -> {field: (offset, bytes)}."""

    def __init__(self):
        self.functions, self.structs, self.constants, self.handles, self.types = {}, {}, [], [], {}
        self.numbers, self.sizes, self.places = {}, {}, {}


def spelled(text):
    """A type in one spelling: words apart, stars and brackets close to what follows."""
    words = re.findall(r"\w+|\*|\(|\)|,", text.replace("struct ", ""))
    line = ""
    for word in words:
        if word == ",":
            line += ", "
        elif word == ")" or not line or line[-1] in "*( ":
            line += word
        elif word == "(" and line[-1] == ")":
            line += word
        else:
            line += " " + word
    return line


def declarator(text):
    """("type", "name") of one declaration such as `const attn_tensor *const *parts`."""
    pointer = re.fullmatch(r"\s*(.+?)\(\*(\w+)\)\s*\((.*)\)\s*", text)
    if pointer:
        return signature((spelled(pointer[1]), argument_types(pointer[3])), "(*)"), pointer[2]
    plain = re.fullmatch(r"\s*(.*[\s*])(\w+)\s*", text)
    if not plain or "[" in text:
        raise ValueError(f"cannot read the declaration: {text}")
    return spelled(plain[1]), plain[2]


def argument_types(text):
    return [] if text.strip() == "void" else [declarator(part)[0] for part in text.split(",")]


def struct_fields(body):
    fields = []
    for line in (line.strip() for line in body.split(";")):
        if not line:
            continue
        if "(" in line:
            fields.append(declarator(line)[::-1])
            continue
        first, *others = line.split(",")
        kind, name = declarator(first)
        fields.append((name, kind))
        base = kind.rstrip("*").strip()
        for other in others:
            stars, name = re.fullmatch(r"\s*(\**)\s*(\w+)\s*", other).groups()
            fields.append((name, f"{base} {stars}" if stars else base))
    return fields


def preprocessed(include, compiler):
    """The declarations of the project's own headers, without the system's."""
    folder, own, lines = os.path.join(os.path.abspath(include), ""), False, []
    command = [compiler, "-std=c99", "-E", "-I", folder, "-x", "c", "-"]
    for line in subprocess.run(command, input="#include <attn/attn.h>\n", capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("#"):
            own = folder in line
        elif own:
            lines.append(line)
    return " ".join(lines)


def read(include, compiler):
    interface, text = Interface(), preprocessed(include, compiler)
    while text.strip():
        found = re.match(r"\s*(?:typedef )?(\w+)\s*(\w*)\s*\{(.*?)\}\s*(\w*)\s*;", text)
        if found:
            if found[1] == "enum":
                interface.constants += re.findall(r"(\w+)\s*=", found[3])
                if any("=" not in part for part in found[3].split(",")):
                    raise ValueError(f"a constant without its number: {found[3]}")
            else:
                interface.structs[found[4]] = struct_fields(found[3])
            text = text[found.end():]
            continue
        line, text = text.split(";", 1)
        line = line.strip()
        handle, alias = re.fullmatch(r"typedef struct (\w+) \1", line), re.fullmatch(r"typedef (\w+) (\w+)", line)
        function = re.fullmatch(r"(.*?)(\w+)\s*\(([^()]*)\)", line)
        if handle:
            interface.handles.append(handle[1])
        elif alias:
            interface.types[alias[2]] = alias[1]
        elif function:
            interface.functions[function[2]] = (spelled(function[1]), argument_types(function[3]))
        else:
            raise ValueError(f"cannot read the declaration: {line}")
    return interface


def signature(function, pointer=""):
    result, arguments = function
    space = "" if result.endswith("*") else " "
    return f"{result}{space}{pointer}({', '.join(arguments) or 'void'})"


def program(interface):
    """A C program that prints numbers, sizes and offsets, and does not compile when a type was read wrongly."""
    yield "#include <attn/attn.h>\n#include <stddef.h>\n#include <stdio.h>"
    yield "#define IS(value, type) _Static_assert(_Generic(value, type: 1, default: 0), #value)"
    for name, function in interface.functions.items():
        yield f"IS(&{name}, {signature(function, '(*)')});"
    for name, fields in interface.structs.items():
        for field, kind in fields:
            address = kind.replace("(*)", "(**)") if "(*)" in kind else kind + ("*" if kind.endswith("*") else " *")
            yield f"IS(&(({name} *)0)->{field}, {address});"
    yield "int main(void)\n{"
    for name in interface.constants:
        yield f'    printf("number {name} %lld\\n", (long long){name});'
    for name, fields in interface.structs.items():
        yield f'    printf("size {name} %zu\\n", sizeof({name}));'
        for field, _ in fields:
            yield f'    printf("place {name} {field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
    yield "}"


def measure(interface, include, compiler):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "measure.c"), os.path.join(folder, "measure")
        with open(source, "w", encoding="ascii") as file:
            file.write("\n".join(program(interface)) + "\n")
        subprocess.run([compiler, "-std=c11", "-I", include, "-o", binary, source], check=True)
        printed = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    for kind, name, *rest in map(str.split, printed.splitlines()):
        if kind == "number":
            interface.numbers[name] = int(rest[0])
        elif kind == "size":
            interface.sizes[name] = int(rest[0])
        else:
            interface.places.setdefault(name, {})[rest[0]] = (int(rest[1]), int(rest[2]))
    return interface
