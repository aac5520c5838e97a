"""A model of "attn train --task seq2seq" through the C interface, for the scripts here: loaded, asked for targets, one call a step."""
import ctypes
import os
import shutil
import sys

sys.dont_write_bytecode = True


def binding(program):
    """tests/ffi/python/libattn.py with the library that lies beside the program, or in the lib beside its folder, or is installed."""
    found = shutil.which(program)
    if found is None:
        sys.exit(f"--program: {program} is not there, or cannot be run")
    folder = os.path.dirname(os.path.realpath(found))
    for place in (folder, os.path.join(folder, "..", "lib")):
        if os.path.exists(os.path.join(place, "libattn.so.0")):
            os.environ.setdefault("ATTN_LIBRARY", os.path.join(place, "libattn.so.0"))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "ffi", "python"))
    import libattn
    return libattn


def model_file(folder):
    return os.path.join(folder, "model.safetensors")


def read_words(path):
    """The first column of every line that is not empty."""
    with open(path, encoding="utf-8") as f:
        words = [line.rstrip("\r\n").split("\t")[0] for line in f]
    return [word for word in words if word]


class PairModel:
    """Sources are lists of tokens with their end; targets come without theirs."""

    def __init__(self, attn, folder, threads):
        self.attn, self.context = attn, attn.Context(threads=threads)
        self.model = attn.Model(self.context, model_file(folder))
        texts = [self.model.metadata(f"program.{side}_vocabulary") for side in ("source", "target")]
        if None in texts:
            sys.exit(f"{folder}: has no vocabularies of a source and a target, so it is no model of \"attn train --task seq2seq\"")
        self.letters, self.phones = (attn.Vocabulary(self.context, text) for text in texts)
        self.stop = len(self.phones)  # begins and ends a target
        self.most = self.model.options().context  # tokens of a target
        self.generators = {}

    def encode(self, word):
        return self.letters.encode(word) + [len(self.letters)]

    def generator(self, sequences, beam):
        """Kept from call to call."""
        key = sequences, beam
        if key not in self.generators:
            stops = (ctypes.c_int32 * 1)(self.stop)
            self.generators[key] = self.attn.Generator(self.context, self.model, sequences=sequences, beam=beam, capacity=self.most + 1,
                                                       temperature=0.0, stop_count=1, stops=ctypes.addressof(stops))
        return self.generators[key]

    def layout(self, lengths):
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        return self.attn.Layout(self.context, [(start, length, 0, i) for i, (start, length) in enumerate(zip(starts, lengths))])

    def prompt(self, generator, sources):
        count = len(sources)
        source = self.attn.Tokens(self.context, [token for one in sources for token in one])
        target = self.attn.Tokens(self.context, [self.stop] * count)
        layouts = (self.layout([len(one) for one in sources]), self.layout([1] * count)) if count > 1 else ()
        generator.prompt(source, target, *layouts)
        for handle in (source, target, *layouts):
            handle.close()

    def decode(self, sources, beam):
        """The targets of a batch, as a program would ask for them."""
        generator, count = self.generator(len(sources), beam), len(sources)
        self.prompt(generator, sources)
        for _ in range(self.most):
            if all(generator.step(count)[1]):
                break
        return [generator.result(self.most + 1, i)[0] for i in range(count)]
