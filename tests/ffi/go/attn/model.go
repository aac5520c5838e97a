package attn

/*
#include <attn/attn.h>
#include <stdlib.h>
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// ModelOptions are a few of attn_transformer_options, for a decoder with learned positions and norms before its sub-layers.
type ModelOptions struct{ Layers, Width, Heads, Vocabulary, Context int }

// Model is a Transformer. Goroutines may share it, each with a context of its own; training needs it alone.
type Model struct{ c *C.attn_transformer }

// NewModel makes a model with started weights.
func (ctx *Context) NewModel(o ModelOptions) (*Model, error) {
	var options C.attn_transformer_options
	C.attn_transformer_options_init(&options, C.sizeof_attn_transformer_options)
	options.encoder_layers, options.decoder_layers = 0, C.int64_t(o.Layers)
	options.width, options.heads = C.int64_t(o.Width), C.int64_t(o.Heads)
	options.source_vocabulary, options.context = C.int64_t(o.Vocabulary), C.int64_t(o.Context)
	options.norm_placement, options.positions = C.ATTN_PLACEMENT_PRE, C.ATTN_POSITIONS_LEARNED
	m := &Model{}
	return m.made(ctx.check(C.attn_transformer_create(ctx.c, &options, &m.c)))
}

// Load makes the model of a file.
func (ctx *Context) Load(path string) (*Model, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	m := &Model{}
	return m.made(ctx.check(C.attn_transformer_load(ctx.c, cPath, nil, &m.c)))
}

func (m *Model) made(err error) (*Model, error) {
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(m, (*Model).Free)
	return m, nil
}

// Save writes one file: parameters and options.
func (m *Model) Save(ctx *Context, path string) error {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	err := ctx.check(C.attn_transformer_save(ctx.c, m.c, 0, nil, nil, cPath))
	runtime.KeepAlive(m)
	return err
}

// Free frees the model. Trainers and generators keep its parameters.
func (m *Model) Free() {
	C.attn_transformer_free(m.c)
	m.c = nil
}

// TrainerOptions are the data's and Adam's.
type TrainerOptions struct {
	Window, Batch int     // tokens a window, windows a batch
	Rate, Clip    float64 // learning rate; largest norm of the gradients
}

// Trainer is a model, its data and its optimizer.
type Trainer struct{ c *C.attn_trainer }

// NewTrainer makes a trainer that predicts the next of the tokens, which are copied.
func (ctx *Context) NewTrainer(m *Model, tokens []int32, o TrainerOptions) (*Trainer, error) {
	var windows C.attn_dataset_options
	C.attn_dataset_options_init(&windows, C.sizeof_attn_dataset_options)
	windows.context, windows.batch = C.int64_t(o.Window), C.int64_t(o.Batch)
	var data *C.attn_dataset
	if err := ctx.check(C.attn_dataset_tokens(ctx.c, ids(tokens), C.int64_t(len(tokens)), &windows, &data)); err != nil {
		return nil, err
	}
	defer C.attn_dataset_free(data) // the trainer keeps what it needs of it

	var adam C.attn_optimizer_options
	C.attn_optimizer_options_init(&adam, C.sizeof_attn_optimizer_options)
	adam.rate, adam.clip = C.double(o.Rate), C.double(o.Clip)
	t := &Trainer{}
	if err := ctx.check(C.attn_trainer_create(ctx.c, m.c, data, &adam, nil, nil, &t.c)); err != nil {
		return nil, err
	}
	runtime.KeepAlive(m)
	runtime.SetFinalizer(t, (*Trainer).Free)
	return t, nil
}

// Step is forward, backward and update on the next batch; it gives the loss.
func (t *Trainer) Step(ctx *Context) (float64, error) {
	var report C.attn_trainer_report
	C.attn_trainer_report_init(&report, C.sizeof_attn_trainer_report)
	err := ctx.check(C.attn_trainer_step(ctx.c, t.c, nil, &report))
	runtime.KeepAlive(t)
	return float64(report.loss), err
}

// Free frees the trainer, not the model.
func (t *Trainer) Free() {
	C.attn_trainer_free(t.c)
	t.c = nil
}

// Write gives `count` tokens that go on from the prompt, always the likeliest. capacity: tokens it has room for; 0: the model's context.
func (m *Model) Write(ctx *Context, prompt []int32, count, capacity int) ([]int32, error) {
	var options C.attn_generator_options
	C.attn_generator_options_init(&options, C.sizeof_attn_generator_options)
	options.temperature = 0
	if capacity > 0 {
		options.capacity = C.int64_t(capacity)
	}
	var generator *C.attn_generator
	if err := ctx.check(C.attn_generator_create(ctx.c, m.c, &options, &generator)); err != nil {
		return nil, err
	}
	defer C.attn_generator_free(generator)
	defer runtime.KeepAlive(m)
	if err := ctx.check(C.attn_generator_prompt_tokens(ctx.c, generator, C.int64_t(len(prompt)), ids(prompt))); err != nil {
		return nil, err
	}
	var written []int32
	var token, finished C.int32_t
	for len(written) < count && finished == 0 {
		if err := ctx.check(C.attn_generator_step(ctx.c, generator, 1, &token, &finished)); err != nil {
			return written, err
		}
		written = append(written, int32(token))
	}
	return written, nil
}

// ids is the address of tokens, read during a call only.
func ids(tokens []int32) *C.int32_t {
	if len(tokens) == 0 {
		return nil
	}
	return (*C.int32_t)(unsafe.Pointer(&tokens[0]))
}
