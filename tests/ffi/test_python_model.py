"""A model's life through python/libattn.py, without numpy: train, save, load, generate, and errors as exceptions."""
import os
import sys
import tempfile
import threading

if os.environ.get("ATTN_SANITIZE"):
    print("a library under a sanitizer cannot be loaded into this python")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python"))
import libattn as attn

LINE = b"pack my box with five dozen liquor jugs. "
SHAPE = {"encoder_layers": 0, "decoder_layers": 1, "width": 32, "heads": 2, "source_vocabulary": 128, "context": 64, "norm_placement": 1,
         "positions": 2}


def train(context, model):
    """Learns the line by heart; the losses of all steps."""
    with attn.Dataset(context, LINE * 40, context=32, batch=8) as data, attn.Trainer(context, model, data, rate=1e-2, clip=1.0) as trainer:
        return [trainer.step().loss for _ in range(100)]


def write(context, model, count=28):
    with attn.Generator(context, model, temperature=0.0) as generator:
        return bytes(generator.write(b"pack", count))


def fails(status, word, function, /, *arguments, **options):
    try:
        function(*arguments, **options)
    except attn.Error as error:
        assert error.status == status, f"got status {error.status}, expected {status}: {error}"
        assert word in error.text, f"no \"{word}\" in \"{error.text}\""
        return
    assert False, f"no error, expected {status}"


def check_errors(context, model, folder):
    path = os.path.join(folder, "broken.safetensors")
    with open(path, "wb") as file:
        file.write(b"no model")
    fails(attn.BAD_FILE, "broken.safetensors", attn.Model, context, path)
    fails(attn.IO, "absent.safetensors", attn.Model, context, os.path.join(folder, "absent.safetensors"))
    fails(attn.SHAPE, "width", attn.Model, context, **{**SHAPE, "heads": 3})
    fails(attn.INVALID_ARGUMENT, "dropout_sublayer", attn.Model, context, **SHAPE, dropout_sublayer=2.0)
    fails(attn.FULL, "cache rows left", attn.Generator(context, model, capacity=8).write, b"pack", 9)
    fails(attn.INVALID_ARGUMENT, "1000", attn.Generator(context, model).write, [1000], 1)


def check_pairs(context):
    """An encoder-decoder: a batch gives each sequence what it gets alone, and the likeliest tokens are those of a step."""
    model = attn.Model(context, encoder_layers=1, decoder_layers=1, width=32, heads=2, source_vocabulary=20, target_vocabulary=12, context=16)
    assert model.options().target_vocabulary == 12
    sources, count, found = [[1, 2, 3], [4, 5], [6]], 8, []
    for source in sources:
        with attn.Generator(context, model, temperature=0.0) as generator:
            generator.prompt(attn.Tokens(context, source), attn.Tokens(context, [0]))
            for _ in range(count):
                logits = list(generator.logits(1, 12))
                generator.accept([logits.index(max(logits))])
            found.append(generator.result(count))
    with attn.Generator(context, model, sequences=len(sources), temperature=0.0) as generator:
        layout = attn.Layout(context, [(0, 3, 0, 0), (3, 2, 0, 1), (5, 1, 0, 2)])
        generator.prompt(attn.Tokens(context, sum(sources, [])), attn.Tokens(context, [0] * 3), layout,
                         attn.Layout(context, [(i, 1, 0, i) for i in range(3)]))
        for _ in range(count):
            generator.step(len(sources))
        for i, (tokens, score) in enumerate(found):
            batched = generator.result(count, i)
            assert batched[0] == tokens and abs(batched[1] - score) < 1e-4, (batched, tokens, score)
    fails(attn.INVALID_ARGUMENT, "20", attn.Generator(context, model).prompt, attn.Tokens(context, [20]), attn.Tokens(context, [0]))


def check_vocabulary(context):
    text = '{"format": "attn_vocabulary", "version": 1, "symbols": "words", "unknown": true, "tokens": ["one", "two"]}'
    words = attn.Vocabulary(context, text)
    assert len(words) == 3 and words.encode("two one three") == [2, 1, 0]
    assert words.decode([2, 1, 0]) == "two one <unk>" and words.decode([]) == ""


def check_threads(model, expected):
    """The model is only read: each thread has a context of its own, and writes the same."""
    written = [None] * 3

    def run(i):
        with attn.Context(threads=1) as context:
            written[i] = write(context, model)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(written))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [expected] * len(written), written


with tempfile.TemporaryDirectory() as folder, attn.Context(seed=1) as context:
    model = attn.Model(context, **SHAPE)
    losses = train(context, model)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < 0.3 * losses[0], losses
    text = write(context, model)
    print("written:", text.decode())
    assert text == LINE[4:32], text

    path = os.path.join(folder, "model.safetensors")
    model.save(path, made_by="test_python_model")
    loaded = attn.Model(context, path)
    assert loaded.metadata("made_by") == "test_python_model" and loaded.metadata("absent") is None
    assert write(context, loaded) == text
    check_threads(loaded, text)
    check_errors(context, loaded, folder)
    check_pairs(context)
    check_vocabulary(context)
print("all equal")
