"""A binding of libattn for Python, by ctypes alone: declarations, objects that free themselves, statuses as exceptions.

ATTN_LIBRARY names the library where it is not installed. It is a start for a binding of your own: take it, and add the declarations you
need. tests/ffi/test_declarations.py compares every struct and signature here with the headers.
"""
import ctypes
import os
import weakref
from ctypes import POINTER, byref, sizeof

Int32, Int64, UInt64, Double, Text, Address = (ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, ctypes.c_char_p,
                                               ctypes.c_void_p)
Status = ctypes.c_int32
lib = ctypes.CDLL(os.environ.get("ATTN_LIBRARY", "libattn.so.0"))

# numbers of attn/*.h that never change
OK, INVALID_ARGUMENT, SHAPE, DTYPE, BAD_STATE, FULL, IO, BAD_FILE = 0, -1, -2, -3, -6, -22, -40, -41
FLOAT32, FLOAT64, INT32, INT64 = 1, 2, 3, 4
BACKEND_BLAS, BACKEND_REFERENCE = 0, 1
ALIGN_LAST = 0
ORDER_RANDOM_WINDOWS, ORDER_SEQUENTIAL = 0, 1
TYPES = {"float32": FLOAT32, "float64": FLOAT64, "int32": INT32, "int64": INT64}


class Error(Exception):
    """What a call that failed leaves: the status, and the text that names the argument."""

    def __init__(self, status, text):
        super().__init__(f"{lib.attn_status_name(status).decode()}: {text}")
        self.status, self.text = status, text


# ---- objects

class Handle:
    """An object of the library: freed by close, at the end of a `with`, or when nobody refers to it any more, in any order."""
    kind = None

    def __init__(self, create, *arguments, context=None):
        self.pointer, self.context = Address(), context
        create(*arguments, byref(self.pointer))
        self.close = weakref.finalize(self, getattr(lib, f"attn_{self.kind}_free"), self.pointer)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @classmethod
    def from_param(cls, value):
        """Lets argument lists below name these classes: None is NULL; another kind of object, or a closed one, is
        a ctypes.ArgumentError."""
        if value is None or isinstance(value, Address):
            return value
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")
        if not value.close.alive:
            raise ValueError(f"the {cls.__name__} is closed")
        return value.pointer


class Context(Handle):
    kind = "context"

    def __init__(self, **options):
        super().__init__(lib.attn_context_create, ContextOptions(**options))

    def set_backend(self, backend):
        lib.attn_context_set_backend(self, backend)


class Tensor(Handle):
    """The memory of a numpy array, strides and all. The array is kept as long as the tensor; a tape wants it until backward."""
    kind = "tensor"

    def __init__(self, context, array):
        self.array = array
        strides = integers([s // array.itemsize for s in array.strides])
        super().__init__(lib.attn_tensor_wrap, context, TYPES[array.dtype.name], array.ndim, integers(array.shape), strides,
                         Address(array.ctypes.data), context=context)


class Tokens(Tensor):
    """A list of tokens, without numpy."""

    def __init__(self, context, tokens):
        self.array = (Int32 * len(tokens))(*tokens)
        Handle.__init__(self, lib.attn_tensor_wrap, context, INT32, 1, integers([len(tokens)]), None, Address(ctypes.addressof(self.array)),
                        context=context)


class Layout(Handle):
    """Which rows are which sequence: (start, length, first position, sequence id) for each."""
    kind = "layout"

    def __init__(self, context, segments):
        super().__init__(lib.attn_layout_create, context, len(segments), context=context)
        lib.attn_layout_set(context, self, len(segments), (Segment * len(segments))(*[Segment(*s) for s in segments]))


class Mask(Handle):
    kind = "mask"

    def __init__(self, context, alignment=ALIGN_LAST):
        super().__init__(lib.attn_mask_causal, context, alignment, context=context)


class Tape(Handle):
    """tape.begin(), tape.watch(input, gradient), operations, tape.backward(outputs, their gradients)."""
    kind = "tape"

    def __init__(self, context):
        super().__init__(lib.attn_tape_create, context, context=context)

    def begin(self, **options):
        lib.attn_tape_begin(self.context, self, TapeOptions(**options))

    def watch(self, tensor, gradient):
        lib.attn_tape_watch(self.context, self, tensor, gradient)

    def backward(self, outputs, gradients=None):
        given = None if gradients is None else pointers(gradients)
        lib.attn_tape_backward(self.context, self, len(outputs), pointers(outputs), given, 0, None)


class Model(Handle):
    """A Transformer: made by its options, or loaded from a file."""
    kind = "transformer"

    def __init__(self, context, path=None, /, **options):
        if path is not None:
            super().__init__(lib.attn_transformer_load, context, os.fsencode(path), None, context=context)
        else:
            super().__init__(lib.attn_transformer_create, context, TransformerOptions(**options), context=context)

    def save(self, path, **metadata):
        keys, values = ((Text * len(metadata))(*[word.encode() for word in words]) for words in (metadata.keys(), metadata.values()))
        lib.attn_transformer_save(self.context, self, len(metadata), keys, values, os.fsencode(path))

    def options(self):
        found = TransformerOptions()
        lib.attn_transformer_get_options(self.context, self, found)
        return found

    def metadata(self, key):
        value = lib.attn_transformer_metadata(self, key.encode())
        return None if value is None else value.decode()


class Vocabulary(Handle):
    """Of its text form, which a model has among its metadata."""
    kind = "vocabulary"

    def __init__(self, context, text):
        text = text.encode()
        super().__init__(lib.attn_vocabulary_from_text, context, text, len(text), context=context)

    def __len__(self):
        return lib.attn_vocabulary_size(self)

    def encode(self, text):
        text, count = text.encode(), Int64()
        tokens = (Int32 * len(text))()
        lib.attn_vocabulary_encode(self.context, self, text, len(text), len(text), tokens, byref(count))
        return tokens[:count.value]

    def decode(self, tokens):
        tokens, count = (Int32 * len(tokens))(*tokens), Int64()
        try:
            lib.attn_vocabulary_decode(self.context, self, tokens, len(tokens), 0, None, byref(count))
        except Error as error:
            if error.status != FULL:
                raise
        text = ctypes.create_string_buffer(count.value)
        lib.attn_vocabulary_decode(self.context, self, tokens, len(tokens), count.value, text, byref(count))
        return text.raw.decode()


class Dataset(Handle):
    kind = "dataset"

    def __init__(self, context, tokens, /, **options):
        super().__init__(lib.attn_dataset_tokens, context, (Int32 * len(tokens))(*tokens), len(tokens), DatasetOptions(**options),
                         context=context)


class Trainer(Handle):
    kind = "trainer"

    def __init__(self, context, model, dataset, /, **optimizer):
        super().__init__(lib.attn_trainer_create, context, model, dataset, OptimizerOptions(**optimizer), None, None, context=context)

    def step(self):
        report = TrainerReport()
        lib.attn_trainer_step(self.context, self, None, report)
        return report


class Generator(Handle):
    kind = "generator"

    def __init__(self, context, model, /, **options):
        super().__init__(lib.attn_generator_create, context, model, GeneratorOptions(**options), context=context)

    def prompt(self, source, target, source_layout=None, target_layout=None):
        """Tensors of tokens, for a model with an encoder; layouts where there are several sequences."""
        lib.attn_generator_prompt(self.context, self, Batch(**{name: handle.pointer for name, handle in (
            ("source", source), ("target", target), ("source_layout", source_layout), ("target_layout", target_layout)) if handle is not None}))

    def logits(self, rows, vocabulary):
        """Of the next token, as a float32 array of ctypes, row by row: the library's own memory, until the next step."""
        tensor = Address()
        lib.attn_generator_logits(self.context, self, byref(tensor))
        return (ctypes.c_float * (rows * vocabulary)).from_address(lib.attn_tensor_data_const(tensor))

    def accept(self, tokens):
        lib.attn_generator_accept(self.context, self, len(tokens), (Int32 * len(tokens))(*tokens))

    def step(self, sequences):
        """The newest token of each sequence, -1 of those that had finished before, and whether it has finished."""
        tokens, finished = (Int32 * sequences)(), (Int32 * sequences)()
        lib.attn_generator_step(self.context, self, sequences, tokens, finished)
        return tokens[:], finished[:]

    def result(self, capacity, sequence=0, rank=0):
        """Tokens of a sequence, at most `capacity`, and the sum of their log p."""
        tokens, count, score = (Int32 * capacity)(), Int64(), Double()
        lib.attn_generator_result(self.context, self, sequence, rank, capacity, tokens, byref(count), byref(score))
        return tokens[:count.value], score.value

    def write(self, prompt, count):
        """`count` tokens that go on from the prompt's, fewer when a stop token comes."""
        lib.attn_generator_prompt_tokens(self.context, self, len(prompt), (Int32 * len(prompt))(*prompt))
        token, finished, written = Int32(), Int32(), []
        while len(written) < count and not finished.value:
            lib.attn_generator_step(self.context, self, 1, byref(token), byref(finished))
            written.append(token.value)
        return written


def attention(context, tape, query, key, value, query_layout, key_layout, mask, output, **options):
    lib.attn_dot_product_attention(context, tape, query, key, value, query_layout, key_layout, mask, DotProductOptions(**options), output)


def integers(values):
    return (Int64 * len(values))(*values)


def pointers(handles):
    return (Address * len(handles))(*[None if h is None else h.pointer for h in handles])


# ---- structs

class Options(ctypes.Structure):
    """Begins with struct_size, which the library's own init writes, with its defaults. Unknown names are refused."""
    name = None

    def __init__(self, **fields):
        super().__init__()
        getattr(lib, f"{self.name}_init")(self, sizeof(self))
        for field, value in fields.items():
            if field not in dict(self._fields_):
                raise TypeError(f"{self.name} has no {field}")
            setattr(self, field, value)


def fields(*groups):
    """("i64 heads width", "f64 dropout") as the _fields_ of a struct."""
    types = {"i32": Int32, "i64": Int64, "u64": UInt64, "f64": Double, "pointer": Address}
    return [(name, types[group.split()[0]]) for group in groups for name in group.split()[1:]]


class Segment(ctypes.Structure):
    name = "attn_segment"
    _fields_ = fields("i64 start length first_position sequence_id")


class ContextOptions(Options):
    name = "attn_context_options"
    _fields_ = fields("u64 struct_size", "i32 backend threads", "u64 seed", "i64 memory_cap", "i32 guard_blas reserved",
                      "pointer allocator")


class TapeOptions(Options):
    name = "attn_tape_options"
    _fields_ = fields("u64 struct_size", "i32 training reserved", "u64 seed", "i64 step")


class DotProductOptions(Options):
    name = "attn_dot_product_options"
    _fields_ = fields("u64 struct_size", "f64 scale dropout soft_cap", "u64 site", "i32 derive_scale reserved")


class TransformerOptions(Options):
    name = "attn_transformer_options"
    _fields_ = fields(
        "u64 struct_size",
        "i64 encoder_layers decoder_layers width heads key_heads head_size feed_forward decoder_width decoder_heads decoder_feed_forward",
        "i64 source_vocabulary target_vocabulary context patch_values segment_types",
        "i32 dtype norm norm_placement final_norm activation gated learned_beta parallel_block positions tie attention_bias",
        "i32 feed_forward_bias norm_bias output_bias output_head embedding_norm initialisation checkpoint_layers",
        "f64 norm_epsilon embedding_scale initialisation_scale swish_beta rotary_base soft_cap",
        "f64 dropout_embedding dropout_attention dropout_sublayer dropout_activation",
        "i64 position_buckets position_reach rotated",
        "i32 rotary_pairing rotary_scaling scaled_scores query_key_norm gated_attention reserved",
        "f64 rotary_factor rotary_context rotary_low rotary_high rotary_magnitude",
        "i32 recurrence both_ways decoder_attention decoder_score global_projections form",
        "i64 features feature_seed projected")


class Batch(Options):
    name = "attn_batch"
    _fields_ = fields("u64 struct_size", "pointer source target labels source_layout target_layout")


class DatasetOptions(Options):
    name = "attn_dataset_options"
    _fields_ = fields("u64 struct_size", "i64 context batch", "u64 seed", "i32 order reserved", "f64 first last")


class OptimizerOptions(Options):
    name = "attn_optimizer_options"
    _fields_ = fields("u64 struct_size", "i32 optimizer no_decay", "f64 rate beta1 beta2 epsilon weight_decay l2 clip")


class GeneratorOptions(Options):
    name = "attn_generator_options"
    _fields_ = fields("u64 struct_size", "i64 sequences beam capacity", "f64 temperature top_p length_penalty", "i64 top_k", "u64 seed",
                      "i64 stop_count", "pointer stops")


class TrainerReport(Options):
    name = "attn_trainer_report"
    _fields_ = fields("u64 struct_size", "i64 step tokens", "f64 loss unsmoothed_loss penalty rate gradient_norm", "i32 skipped reserved",
                      "i64 layer_count", "pointer layer_norms")


# ---- functions: name, result, arguments

FUNCTIONS = [
    ("attn_version", Text, []),
    ("attn_status_name", Text, [Status]),
    ("attn_context_create", Status, [POINTER(ContextOptions), POINTER(Address)]),
    ("attn_context_last_error", Text, [Context]),
    ("attn_context_set_backend", Status, [Context, Int32]),
    ("attn_tensor_wrap", Status, [Context, Int32, Int32, POINTER(Int64), POINTER(Int64), Address, POINTER(Address)]),
    ("attn_tensor_data_const", Address, [Address]),
    ("attn_layout_create", Status, [Context, Int64, POINTER(Address)]),
    ("attn_layout_set", Status, [Context, Layout, Int64, POINTER(Segment)]),
    ("attn_mask_causal", Status, [Context, Int32, POINTER(Address)]),
    ("attn_tape_create", Status, [Context, POINTER(Address)]),
    ("attn_tape_begin", Status, [Context, Tape, POINTER(TapeOptions)]),
    ("attn_tape_watch", Status, [Context, Tape, Tensor, Tensor]),
    ("attn_tape_backward", Status, [Context, Tape, Int64, POINTER(Address), POINTER(Address), Int64, POINTER(Address)]),
    ("attn_dot_product_attention", Status,
     [Context, Tape, Tensor, Tensor, Tensor, Layout, Layout, Mask, POINTER(DotProductOptions), Tensor]),
    ("attn_transformer_create", Status, [Context, POINTER(TransformerOptions), POINTER(Address)]),
    ("attn_transformer_save", Status, [Context, Model, Int64, POINTER(Text), POINTER(Text), Text]),
    ("attn_transformer_load", Status, [Context, Text, Address, POINTER(Address)]),
    ("attn_transformer_get_options", Status, [Context, Model, POINTER(TransformerOptions)]),
    ("attn_transformer_metadata", Text, [Model, Text]),
    ("attn_vocabulary_from_text", Status, [Context, Address, Int64, POINTER(Address)]),
    ("attn_vocabulary_size", Int64, [Vocabulary]),
    ("attn_vocabulary_encode", Status, [Context, Vocabulary, Address, Int64, Int64, POINTER(Int32), POINTER(Int64)]),
    ("attn_vocabulary_decode", Status, [Context, Vocabulary, POINTER(Int32), Int64, Int64, Address, POINTER(Int64)]),
    ("attn_dataset_tokens", Status, [Context, POINTER(Int32), Int64, POINTER(DatasetOptions), POINTER(Address)]),
    ("attn_trainer_create", Status, [Context, Model, Dataset, POINTER(OptimizerOptions), Address, Address, POINTER(Address)]),
    ("attn_trainer_step", Status, [Context, Trainer, Address, POINTER(TrainerReport)]),
    ("attn_generator_create", Status, [Context, Model, POINTER(GeneratorOptions), POINTER(Address)]),
    ("attn_generator_prompt_tokens", Status, [Context, Generator, Int64, POINTER(Int32)]),
    ("attn_generator_prompt", Status, [Context, Generator, POINTER(Batch)]),
    ("attn_generator_logits", Status, [Context, Generator, POINTER(Address)]),
    ("attn_generator_accept", Status, [Context, Generator, Int64, POINTER(Int32)]),
    ("attn_generator_result", Status, [Context, Generator, Int64, Int64, Int64, POINTER(Int32), POINTER(Int64), POINTER(Double)]),
    ("attn_generator_step", Status, [Context, Generator, Int64, POINTER(Int32), POINTER(Int32)]),
]
FUNCTIONS += [(f"attn_{kind.kind}_free", None, [kind]) for kind in Handle.__subclasses__()]
FUNCTIONS += [(f"{struct.name}_init", Status, [POINTER(struct), UInt64]) for struct in Options.__subclasses__()]


def check(status, function, arguments):
    """What ctypes calls with every status: one that is not OK becomes an exception, with the text of the call's context."""
    if status != OK:
        text = lib.attn_context_last_error(arguments[0]).decode() if isinstance(arguments[0], Context) else function.__name__
        raise Error(status, text)
    return status


for _name, _result, _arguments in FUNCTIONS:
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments
    if _result is Status:
        _function.errcheck = check
