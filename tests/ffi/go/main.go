// Attention and a small model through the package attn: checked against plain loops, and against what must go wrong.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"libattn.test/attn"
)

const line = "pack my box with five dozen liquor jugs. "

var small = attn.ModelOptions{Layers: 1, Width: 32, Heads: 2, Vocabulary: 128, Context: 64}

// must ends the program on an error of which none is expected.
func must[T any](value T, err error) T {
	ok(err)
	return value
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

// fails wants an error with this status, and this word in its text.
func fails(status attn.Status, word string, err error) {
	var failure *attn.Error
	expect(errors.As(err, &failure), "got %v, expected an attn.Error with %q", err, word)
	expect(errors.Is(err, status), "got %v, expected %v", err, status)
	expect(strings.Contains(failure.Text, word), "no %q in %q", word, failure.Text)
}

func tokens(text string) []int32 {
	list := make([]int32, len(text))
	for i := range list {
		list[i] = int32(text[i])
	}
	return list
}

func write(ctx *attn.Context, model *attn.Model) string {
	var text strings.Builder
	for _, token := range must(model.Write(ctx, tokens("pack"), 28, 0)) {
		text.WriteByte(byte(token))
	}
	return text.String()
}

// train learns the line by heart and gives the first and the last loss.
func train(ctx *attn.Context, model *attn.Model) (first, last float64) {
	trainer := must(ctx.NewTrainer(model, tokens(strings.Repeat(line, 40)), attn.TrainerOptions{Window: 32, Batch: 8, Rate: 1e-2, Clip: 1}))
	defer trainer.Free()
	first = must(trainer.Step(ctx))
	for step := 1; step < 100; step++ {
		last = must(trainer.Step(ctx))
	}
	return first, last
}

// checkGoroutines shares a model that is only read: each goroutine has a context of its own, and writes the same.
func checkGoroutines(model *attn.Model, expected string) {
	results := make(chan string)
	for i := 0; i < 3; i++ {
		go func() {
			ctx := must(attn.NewContext(attn.BLAS, 1, 0))
			defer ctx.Free()
			results <- write(ctx, model)
		}()
	}
	for i := 0; i < 3; i++ {
		text := <-results
		expect(text == expected, "a goroutine wrote %q, expected %q", text, expected)
	}
}

func checkErrors(ctx *attn.Context, model *attn.Model, folder string) {
	a, b, c, d := attn.NewFloats(32), attn.NewFloats(24), attn.NewFloats(32), attn.NewFloats(32)
	defer a.Free()
	defer b.Free()
	defer c.Free()
	defer d.Free()
	good, narrow := must(ctx.Wrap(a, 4, 1, 8)), must(ctx.Wrap(b, 4, 1, 6))
	output, other := must(ctx.Wrap(c, 4, 1, 8)), must(ctx.Wrap(d, 4, 1, 8))
	fails(attn.Shape, "key", ctx.Attention(nil, good, narrow, good, attn.AttentionOptions{}, output))
	fails(attn.InvalidArgument, "scale", ctx.Attention(nil, good, good, good, attn.AttentionOptions{Scale: math.Inf(1)}, output))
	tape := must(ctx.NewTape())
	ok(tape.Watch(ctx, good, output))
	fails(attn.BadState, "input", tape.Watch(ctx, good, other))

	broken := filepath.Join(folder, "broken.safetensors")
	ok(os.WriteFile(broken, []byte("no model"), 0o644))
	_, err := ctx.Load(broken)
	fails(attn.BadFile, "broken.safetensors", err)
	_, err = ctx.Load(filepath.Join(folder, "absent.safetensors"))
	fails(attn.IO, "absent.safetensors", err)
	wrong := small
	wrong.Heads = 3
	_, err = ctx.NewModel(wrong)
	fails(attn.Shape, "width", err)
	_, err = model.Write(ctx, tokens("pack"), 9, 8)
	fails(attn.Full, "cache rows left", err)
	_, err = attn.NewContext(9, attn.AllThreads, 0)
	fails(attn.InvalidArgument, "context", err)
}

func main() {
	fmt.Println("libattn", attn.Version())
	for _, backend := range []attn.Backend{attn.BLAS, attn.Reference} {
		ctx := must(attn.NewContext(backend, attn.AllThreads, 0))
		for _, c := range attentions {
			c.check(ctx)
		}
		ctx.Free()
		ctx.Free() // a second time is fine
	}

	folder := os.TempDir()
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	ctx := must(attn.NewContext(attn.BLAS, attn.AllThreads, 1))
	model := must(ctx.NewModel(small))
	first, last := train(ctx, model)
	fmt.Printf("loss %.3f to %.3f\n", first, last)
	expect(last < 0.3*first, "the loss does not fall")
	text := write(ctx, model)
	fmt.Println("written:", text)
	expect(text == line[4:32], "expected %q", line[4:32])

	path := filepath.Join(folder, "model.safetensors")
	ok(model.Save(ctx, path))
	loaded := must(ctx.Load(path))
	model.Free()
	expect(write(ctx, loaded) == text, "a loaded model writes something else")
	checkGoroutines(loaded, text)
	checkErrors(ctx, loaded, folder)
	runtime.GC() // whatever is left is freed by finalizers, in any order
	fmt.Println("all equal")
}
