"""Compares the headers and the built library with the stored baseline of the ABI. What stands in the baseline must be there unchanged; more
may be there: constants, functions, fields at the end of structs that begin with struct_size, and fields in the place of reserved ones.

    baseline.py --include DIR --library LIBRARY [--baseline FILE] [--update]     --update writes additions, never a change of what is there
"""
import argparse
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import headers

HEAD = """\
# The ABI of libattn.so.0 on 64-bit machines: what docs/abi.md promises. Sizes and offsets in bytes; a function's version and type.
# Additions: sh tests/abi/run-abi.sh --update. A line that is here stays; before 0.1.0 one may be taken out by hand, with the
# reason in the message of that change.
"""


def versions(library):
    """name -> version of what the library exports."""
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", library]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r" T (\w+)@+(\S+)", printed))


def describe(interface, exported):
    """The ABI as lines: (kind, name) -> the rest. Reserved fields are left out: they may become something else."""
    lines = {}
    for name, kind in interface.types.items():
        lines["type", name] = kind
    for name in interface.handles:
        lines["handle", name] = "opaque"
    for name in interface.constants:
        lines["constant", name] = str(interface.numbers[name])
    for name, fields in interface.structs.items():
        lines["struct", name] = str(interface.sizes[name])
        for field, kind in fields:
            if not field.startswith("reserved"):
                lines["field", f"{name}.{field}"] = f"{interface.places[name][field][0]} {kind}"
    for name, function in sorted(interface.functions.items()):
        lines["function", name] = f"{exported.get(name, '-')} {headers.signature(function)}"
    return lines


def shape_faults(interface):
    """What would make a struct unfit for foreign languages or for growing."""
    for name, fields in interface.structs.items():
        places, end = interface.places[name], 0
        for field, _ in fields:
            offset, size = places[field]
            if offset != end:
                yield f"{name}.{field}: lies at {offset}, expected {end}: there is a hole before it"
            if size == 8 and offset % 8 != 0:
                yield f"{name}.{field}: 8 bytes at {offset}, expected a multiple of 8"
            end = offset + size
        if end != interface.sizes[name] or end % 8 != 0:
            yield f"{name}: {interface.sizes[name]} bytes, fields end at {end}: expected the same, a multiple of 8"
        if name != "attn_segment" and fields[0] != ("struct_size", "uint64_t"):
            yield f"{name}: begins with {fields[0]}, expected uint64_t struct_size"


def breaks(old, new):
    """What the baseline has and the present has no more, or otherwise."""
    for key, was in old.items():
        kind, name = key
        now = new.get(key)
        grows = kind == "struct" and ("field", f"{name}.struct_size") in old
        if now is None:
            yield f"{kind} {name}: gone (it was {was})"
        elif now != was and not (grows and int(now) > int(was)):
            yield f"{kind} {name}: got {now}, expected {was}"


def load(path):
    with open(path, encoding="ascii") as file:
        lines = [line.rstrip("\n").split(" ", 2) for line in file if line.strip() and not line.startswith("#")]
    return {(kind, name): rest for kind, name, rest in lines}


def store(path, lines):
    with open(path, "w", encoding="ascii") as file:
        file.write(HEAD)
        for (kind, name), rest in lines.items():
            file.write(f"{kind} {name} {rest}\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", default=os.path.join(here, "..", "..", "include"))
    parser.add_argument("--library", required=True)
    parser.add_argument("--baseline", default=os.path.join(here, "baseline.txt"))
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    compiler = os.environ.get("CC") or "cc"
    interface = headers.measure(headers.read(given.include, compiler), given.include, compiler)
    new = describe(interface, versions(given.library))
    old = load(given.baseline) if os.path.exists(given.baseline) or not given.update else {}
    faults = list(shape_faults(interface)) + list(breaks(old, new))
    added = [" ".join(key) for key in new if key not in old]
    added += [f"struct {name} grown" for kind, name in old if kind == "struct" and new.get((kind, name)) != old[kind, name]]
    for fault in faults:
        print(f"broken: {fault}")
    if not faults and given.update:
        store(given.baseline, new)
    elif not faults and added:
        print(f"added, not in the baseline yet: {', '.join(added)}")
    print(f"{len(interface.functions)} functions, {len(interface.structs)} structs, {len(interface.constants)} constants, "
          f"{len(interface.handles)} handles: {len(faults)} broken, {len(added)} added")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
