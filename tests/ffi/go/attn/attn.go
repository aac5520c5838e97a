// Package attn is a binding of libattn by cgo: handles that free themselves, statuses as errors. cgo reads the headers, so there are no
// declarations to keep in step. Every object has Free, which may be called early and twice; a finalizer calls it otherwise.
package attn

/*
#cgo pkg-config: libattn
#include <attn/attn.h>
#include <stdlib.h>
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// Status is the number of a failure. It is an error, so that errors.Is(err, attn.Shape) holds for an Error with that status.
type Status int32

const (
	InvalidArgument = Status(C.ATTN_ERROR_INVALID_ARGUMENT)
	Shape           = Status(C.ATTN_ERROR_SHAPE)
	BadState        = Status(C.ATTN_ERROR_BAD_STATE)
	Full            = Status(C.ATTN_ERROR_FULL)
	IO              = Status(C.ATTN_ERROR_IO)
	BadFile         = Status(C.ATTN_ERROR_BAD_FILE)
)

func (s Status) Error() string { return C.GoString(C.attn_status_name(C.attn_status(s))) }

// Error is what a call that failed leaves: the status, and the text that names the argument.
type Error struct {
	Status Status
	Text   string
}

func (e *Error) Error() string { return e.Status.Error() + ": " + e.Text }

// Unwrap lets errors.Is compare the status.
func (e *Error) Unwrap() error { return e.Status }

// Version is that of the library that is loaded.
func Version() string { return C.GoString(C.attn_version()) }

// Backend says where products are computed.
type Backend int32

const (
	BLAS      = Backend(C.ATTN_BACKEND_BLAS)
	Reference = Backend(C.ATTN_BACKEND_REFERENCE)
)

// Context has the threads, the memory and the text of the last error. One goroutine at a time uses it.
type Context struct{ c *C.attn_context }

// NewContext makes a context. threads: AllThreads or a number.
func NewContext(backend Backend, threads int, seed uint64) (*Context, error) {
	var options C.attn_context_options
	C.attn_context_options_init(&options, C.sizeof_attn_context_options)
	options.backend = C.int32_t(backend)
	options.threads = C.int32_t(threads)
	options.seed = C.uint64_t(seed)
	ctx := &Context{}
	if status := C.attn_context_create(&options, &ctx.c); status != C.ATTN_OK {
		return nil, &Error{Status(status), "the context"}
	}
	runtime.SetFinalizer(ctx, (*Context).Free)
	return ctx, nil
}

// AllThreads means one for each processor.
const AllThreads = C.ATTN_THREADS_ALL

// Free ends the threads. Objects made with the context live on.
func (ctx *Context) Free() {
	C.attn_context_free(ctx.c)
	ctx.c = nil
}

// check makes an error of a status, with the context's text.
func (ctx *Context) check(status C.attn_status) error {
	if status == C.ATTN_OK {
		return nil
	}
	err := &Error{Status(status), C.GoString(C.attn_context_last_error(ctx.c))}
	runtime.KeepAlive(ctx)
	return err
}

// Floats is an array that C may keep an address of. Go's own memory may not stay with C after a call (the rules of cgo), so wrapped
// tensors lie over memory from calloc, which Values shows as a slice. A finalizer would not see that the slice is still read: Free is the
// caller's to call, after the last use of the slice and of tensors and tapes over it.
type Floats struct {
	Values []float32
	memory unsafe.Pointer
}

// NewFloats makes an array of zeros.
func NewFloats(count int) *Floats {
	memory := C.calloc(C.size_t(count)+1, C.sizeof_float)
	if memory == nil {
		panic("out of memory")
	}
	return &Floats{unsafe.Slice((*float32)(memory), count), memory}
}

// Free frees the memory.
func (f *Floats) Free() {
	C.free(f.memory)
	f.Values, f.memory = nil, nil
}

// Tensor is a float32 tensor over an array.
type Tensor struct{ c *C.attn_tensor }

// Wrap makes a tensor of a shape over an array.
func (ctx *Context) Wrap(array *Floats, shape ...int64) (*Tensor, error) {
	extents := make([]C.int64_t, len(shape)+1)
	for axis, extent := range shape {
		extents[axis] = C.int64_t(extent)
	}
	t := &Tensor{}
	status := C.attn_tensor_wrap(ctx.c, C.ATTN_FLOAT32, C.int32_t(len(shape)), &extents[0], nil, array.memory, &t.c)
	if err := ctx.check(status); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(t, (*Tensor).Free)
	return t, nil
}

// Free frees the handle, not the array.
func (t *Tensor) Free() {
	C.attn_tensor_free(t.c)
	t.c = nil
}
