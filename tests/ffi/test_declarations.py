"""The declarations that python/libattn.py and rust/sys.rs make by hand, against the headers: structs with every field, its type and place,
signatures, numbers. (Go reads the headers themselves.) So that no binding drifts, and none can be wrong from the start."""
import ctypes
import os
import re
import sys

if os.environ.get("ATTN_SANITIZE"):
    print("a library under a sanitizer cannot be loaded into this python")
    sys.exit(77)
sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "python"), os.path.join(here, "..", "abi")]
import headers
import libattn

INCLUDE, COMPILER = os.path.join(here, "..", "..", "include"), os.environ.get("CC") or "cc"
RUST_NUMBERS = {"i32": "int32_t", "i64": "int64_t", "u64": "uint64_t", "f64": "double", "Status": "attn_status", "c_char": "char",
                "c_void": "void"}
faults, compared = [], 0


def same(what, got, expected):
    global compared
    compared += 1
    if got != expected:
        faults.append(f"{what}: got {got}, expected {expected}")


# ---- Python: the module is asked

def python_fits(kind, c_type):
    """Whether an argument declared as `kind` takes what the header calls c_type. A plain address is any pointer."""
    plain = {ctypes.c_int32: ("int32_t", "attn_status"), ctypes.c_int64: ("int64_t",), ctypes.c_uint64: ("uint64_t",),
             ctypes.c_double: ("double",), ctypes.c_char_p: ("const char *",), None: ("void",)}
    if kind in plain:
        return c_type in plain[kind]
    if kind is ctypes.c_void_p:
        return "*" in c_type
    if isinstance(kind, type) and issubclass(kind, libattn.Handle):
        return c_type.replace("const ", "") == f"attn_{kind.kind} *"
    target, (pointed, stars) = kind._type_, re.fullmatch(r"(?:const )?(\w+ )((?:\*(?:const )?)+)", c_type).groups()
    if hasattr(target, "name"):
        return pointed + stars == f"{target.name} *"
    if target in (ctypes.c_void_p, ctypes.c_char_p):
        return stars.count("*") == 2 and (pointed == "char ") == (target is ctypes.c_char_p)
    return stars == "*" and pointed.strip() in plain[target]


def check_python(interface):
    for name, result, arguments in libattn.FUNCTIONS:
        c_result, c_arguments = interface.functions[name]
        fits = len(arguments) == len(c_arguments) and python_fits(result, c_result) and all(map(python_fits, arguments, c_arguments))
        same(f"python {name}", fits or [getattr(kind, "__name__", kind) for kind in arguments], True)
    for struct in [libattn.Segment] + libattn.Options.__subclasses__():
        expected = [(field, *interface.places[struct.name][field]) for field, _ in interface.structs[struct.name]]
        same(f"python {struct.name}", [(f, getattr(struct, f).offset, getattr(struct, f).size) for f, _ in struct._fields_], expected)
        for (field, kind), (_, c_type) in zip(struct._fields_, interface.structs[struct.name]):
            same(f"python {struct.name}.{field}", python_fits(kind, c_type) or kind.__name__, True)
        same(f"python sizeof {struct.name}", ctypes.sizeof(struct), interface.sizes[struct.name])
    for name, value in vars(libattn).items():
        if name.isupper() and isinstance(value, int):
            c_name = next((c for c in (f"ATTN_{name}", f"ATTN_ERROR_{name}") if c in interface.numbers), None)
            same(f"python {name}", value, interface.numbers.get(c_name))


# ---- Rust: the text is read. With #[repr(C)] the same types in the same order lie in the same places.

def c_name(rust_name):
    """TransformerOptions -> attn_transformer_options"""
    return "attn" + re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), rust_name)


def c_type(rust_type):
    """*const *mut Tensor -> attn_tensor *const *"""
    pointers = re.findall(r"\*(const|mut) ", rust_type)
    base = rust_type.split()[-1]
    base = RUST_NUMBERS.get(base) or c_name(base)
    line = ("const " if pointers and pointers[-1] == "const" else "") + base + (" " if pointers else "")
    for above in reversed(pointers[:-1]):
        line += "*" + ("const " if above == "const" else "")
    return line + ("*" if pointers else "")


def check_rust(interface):
    with open(os.path.join(here, "rust", "sys.rs"), encoding="utf-8") as file:
        text = file.read()
    functions = re.findall(r"pub fn (\w+)\(([^)]*)\)(?: -> ([^;]+))?;", text)
    for name, arguments, result in functions:
        given = [c_type(a.split(":")[1].strip()) for a in arguments.split(",") if a.strip()]
        same(f"rust {name}", (c_type(result) if result else "void", given), interface.functions[name])
    structs = re.findall(r"#\[repr\(C\)\]\n#\[derive\([^)]*\)\]\npub struct (\w+) \{(.*?)\n\}", text, re.S)
    for name, body in structs:
        fields = [(field, c_type(kind)) for field, kind in re.findall(r"pub (\w+): ([^,]+),", body)]
        same(f"rust {name}", fields, interface.structs[c_name(name)])
    constants = re.findall(r"pub const (\w+): \w+ = (-?\d+);", text)
    for name, value in constants:
        same(f"rust {name}", int(value), interface.numbers.get(f"ATTN_{name}"))
    same("rust functions that were read", len(functions), text.count("pub fn "))
    same("rust structs that were read", len(structs), text.count("pub struct ") - 1)  # without the macro's
    same("rust constants that were read", len(constants), text.count("pub const "))


read = headers.measure(headers.read(INCLUDE, COMPILER), INCLUDE, COMPILER)
check_python(read)
check_rust(read)
for fault in faults:
    print(fault)
print(f"{compared} declarations compared: {len(faults)} differ")
sys.exit(1 if faults else 0)
