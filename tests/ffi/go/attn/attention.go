package attn

/*
#include <attn/attn.h>
*/
import "C"

import "runtime"

// Segment is one sequence: its first row, its rows, the position of its first row, and its number.
type Segment struct{ Start, Length, FirstPosition, SequenceID int64 }

// Layout says which rows are which sequence.
type Layout struct{ c *C.attn_layout }

// NewLayout makes a layout of segments.
func (ctx *Context) NewLayout(segments ...Segment) (*Layout, error) {
	l := &Layout{}
	if err := ctx.check(C.attn_layout_create(ctx.c, C.int64_t(len(segments)), &l.c)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(l, (*Layout).Free)
	list := make([]C.attn_segment, len(segments)+1)
	for i, s := range segments {
		list[i] = C.attn_segment{C.int64_t(s.Start), C.int64_t(s.Length), C.int64_t(s.FirstPosition), C.int64_t(s.SequenceID)}
	}
	return l, ctx.check(C.attn_layout_set(ctx.c, l.c, C.int64_t(len(segments)), &list[0]))
}

// Free frees the layout.
func (l *Layout) Free() {
	C.attn_layout_free(l.c)
	l.c = nil
}

// Mask is a rule which keys each query sees.
type Mask struct{ c *C.attn_mask }

// NewCausalMask lets each query see its own place and what is before it, the last query at the last key.
func (ctx *Context) NewCausalMask() (*Mask, error) {
	m := &Mask{}
	if err := ctx.check(C.attn_mask_causal(ctx.c, C.ATTN_ALIGN_LAST, &m.c)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(m, (*Mask).Free)
	return m, nil
}

// Free frees the mask.
func (m *Mask) Free() {
	C.attn_mask_free(m.c)
	m.c = nil
}

// Tape is what a forward calculation leaves for its gradient. Tensors may be freed before Backward, their arrays may not.
type Tape struct{ c *C.attn_tape }

// NewTape makes a tape and begins its round.
func (ctx *Context) NewTape() (*Tape, error) {
	t := &Tape{}
	if err := ctx.check(C.attn_tape_create(ctx.c, &t.c)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, (*Tape).Free)
	return t, ctx.check(C.attn_tape_begin(ctx.c, t.c, nil))
}

// Watch asks for the gradient by input.
func (t *Tape) Watch(ctx *Context, input, gradient *Tensor) error {
	err := ctx.check(C.attn_tape_watch(ctx.c, t.c, input.c, gradient.c))
	for _, used := range []any{t, input, gradient} {
		runtime.KeepAlive(used)
	}
	return err
}

// Backward writes the gradients of <gradient, output>.
func (t *Tape) Backward(ctx *Context, output, gradient *Tensor) error {
	err := ctx.check(C.attn_tape_backward(ctx.c, t.c, 1, &output.c, &gradient.c, 0, nil))
	for _, used := range []any{t, output, gradient} {
		runtime.KeepAlive(used)
	}
	return err
}

// Free frees the tape.
func (t *Tape) Free() {
	C.attn_tape_free(t.c)
	t.c = nil
}

// AttentionOptions are those of Attention; the zero value is the library's defaults.
type AttentionOptions struct {
	QueryLayout, KeyLayout *Layout // nil: one sequence
	Mask                   *Mask   // nil: all keys are seen
	Scale                  float64 // 0: 1 / sqrt(size)
	SoftCap                float64 // 0: none
}

// Attention writes softmax(scale query key^T + mask) value to output, for every head of every segment. tape nil: no gradient is wanted.
func (ctx *Context) Attention(tape *Tape, query, key, value *Tensor, o AttentionOptions, output *Tensor) error {
	var options C.attn_dot_product_options
	C.attn_dot_product_options_init(&options, C.sizeof_attn_dot_product_options)
	options.soft_cap = C.double(o.SoftCap)
	if o.Scale != 0 {
		options.scale, options.derive_scale = C.double(o.Scale), 0
	}
	var cTape *C.attn_tape
	if tape != nil {
		cTape = tape.c
	}
	var queries, keys *C.attn_layout
	if o.QueryLayout != nil {
		queries = o.QueryLayout.c
	}
	if o.KeyLayout != nil {
		keys = o.KeyLayout.c
	}
	var mask *C.attn_mask
	if o.Mask != nil {
		mask = o.Mask.c
	}
	err := ctx.check(C.attn_dot_product_attention(ctx.c, cTape, query.c, key.c, value.c, queries, keys, mask, &options, output.c))
	for _, used := range []any{tape, query, key, value, o, output} {
		runtime.KeepAlive(used)
	}
	return err
}
