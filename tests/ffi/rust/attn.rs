//! Safe Rust over the declarations of sys.rs: handles that drop, errors as `Result`, lifetimes for memory that is lent.
use crate::sys;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::mem::{size_of, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::{error, fmt};

/// What a call that failed leaves: the status, and the text that names the argument.
#[derive(Debug)]
pub struct Error {
    pub status: sys::Status,
    pub text: String,
}
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = unsafe { CStr::from_ptr(sys::attn_status_name(self.status)) };
        write!(out, "{}: {}", name.to_string_lossy(), self.text)
    }
}
impl error::Error for Error {}

pub fn version() -> &'static str {
    unsafe { CStr::from_ptr(sys::attn_version()) }.to_str().unwrap_or("?")
}

/// `defaults(sys::attn_X_options_init)`: the library's own defaults, of any struct that begins with `struct_size`.
pub fn defaults<T>(init: unsafe extern "C" fn(*mut T, u64) -> sys::Status) -> T {
    let mut options = MaybeUninit::<T>::zeroed();
    let status = unsafe { init(options.as_mut_ptr(), size_of::<T>() as u64) };
    assert_eq!(status, sys::OK, "the library is older than this binding");
    unsafe { options.assume_init() }
}

/// An owned pointer and the function that frees it.
struct Handle<T> {
    pointer: *mut T,
    free: unsafe extern "C" fn(*mut T),
}
impl<T> Handle<T> {
    /// Runs a call that makes an object, and owns what it made.
    fn new(free: unsafe extern "C" fn(*mut T), make: impl FnOnce(*mut *mut T) -> Result<()>) -> Result<Self> {
        let mut pointer = null_mut();
        make(&mut pointer)?;
        Ok(Handle { pointer, free })
    }
}
impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        unsafe { (self.free)(self.pointer) }
    }
}

/// Threads, memory and the text of the last error. Used by one thread at a time, so `Send` and not `Sync`.
pub struct Context(Handle<sys::Context>);
unsafe impl Send for Context {}

impl Context {
    pub fn new(options: &sys::ContextOptions) -> Result<Self> {
        Handle::new(sys::attn_context_free, |out| match unsafe { sys::attn_context_create(options, out) } {
            sys::OK => Ok(()),
            status => Err(Error { status, text: "the context".into() }),
        })
        .map(Context)
    }

    fn pointer(&self) -> *mut sys::Context {
        self.0.pointer
    }

    /// A status as a `Result`, with this context's text.
    fn check(&self, status: sys::Status) -> Result<()> {
        if status == sys::OK {
            return Ok(());
        }
        let text = unsafe { CStr::from_ptr(sys::attn_context_last_error(self.pointer())) };
        Err(Error { status, text: text.to_string_lossy().into_owned() })
    }
}

/// A float32 tensor over a borrowed slice.
pub struct Tensor<'a> {
    handle: Handle<sys::Tensor>,
    memory: PhantomData<&'a mut [f32]>,
}
impl<'a> Tensor<'a> {
    pub fn wrap(ctx: &Context, data: &'a mut [f32], shape: &[i64]) -> Result<Self> {
        assert_eq!(data.len() as i64, shape.iter().product::<i64>());
        let handle = Handle::new(sys::attn_tensor_free, |out| {
            let (rank, address) = (shape.len() as i32, data.as_mut_ptr().cast());
            ctx.check(unsafe { sys::attn_tensor_wrap(ctx.pointer(), sys::FLOAT32, rank, shape.as_ptr(), null(), address, out) })
        })?;
        Ok(Tensor { handle, memory: PhantomData })
    }
}

/// Which rows are which sequence.
pub struct Layout(Handle<sys::Layout>);
impl Layout {
    pub fn new(ctx: &Context, segments: &[sys::Segment]) -> Result<Self> {
        let count = segments.len() as i64;
        let layout = Handle::new(sys::attn_layout_free, |out| ctx.check(unsafe { sys::attn_layout_create(ctx.pointer(), count, out) }))?;
        ctx.check(unsafe { sys::attn_layout_set(ctx.pointer(), layout.pointer, count, segments.as_ptr()) })?;
        Ok(Layout(layout))
    }
}

/// Every query sees its own place and what is before it.
pub struct Mask(Handle<sys::Mask>);
impl Mask {
    pub fn causal(ctx: &Context) -> Result<Self> {
        Handle::new(sys::attn_mask_free, |out| ctx.check(unsafe { sys::attn_mask_causal(ctx.pointer(), sys::ALIGN_LAST, out) })).map(Mask)
    }
}

/// What a forward calculation leaves for its gradient. Tensors that it meets are over memory that lives as long as the tape ('a).
pub struct Tape<'a> {
    handle: Handle<sys::Tape>,
    memory: PhantomData<&'a mut [f32]>,
}
impl<'a> Tape<'a> {
    /// A tape whose round has begun.
    pub fn begin(ctx: &Context) -> Result<Self> {
        let handle = Handle::new(sys::attn_tape_free, |out| ctx.check(unsafe { sys::attn_tape_create(ctx.pointer(), out) }))?;
        ctx.check(unsafe { sys::attn_tape_begin(ctx.pointer(), handle.pointer, null()) })?;
        Ok(Tape { handle, memory: PhantomData })
    }

    pub fn watch(&mut self, ctx: &Context, input: &Tensor<'a>, gradient: &mut Tensor<'a>) -> Result<()> {
        ctx.check(unsafe { sys::attn_tape_watch(ctx.pointer(), self.handle.pointer, input.handle.pointer, gradient.handle.pointer) })
    }

    /// Writes the gradients of <gradient, output>.
    pub fn backward(&mut self, ctx: &Context, output: &Tensor<'a>, gradient: &Tensor<'a>) -> Result<()> {
        let (output, gradient): (*const _, *const _) = (output.handle.pointer, gradient.handle.pointer);
        ctx.check(unsafe { sys::attn_tape_backward(ctx.pointer(), self.handle.pointer, 1, &output, &gradient, 0, null()) })
    }
}

/// Query, key and value of one attention.
pub struct Inputs<'t, 'a> {
    pub query: &'t Tensor<'a>,
    pub key: &'t Tensor<'a>,
    pub value: &'t Tensor<'a>,
}

/// softmax(scale query key^T + mask) value, for every head of every segment.
pub fn attention<'a>(
    ctx: &Context, tape: Option<&mut Tape<'a>>, inputs: &Inputs<'_, 'a>, layouts: Option<(&Layout, &Layout)>, mask: Option<&Mask>,
    options: &sys::DotProductOptions, output: &mut Tensor<'a>,
) -> Result<()> {
    let tape = tape.map_or(null_mut(), |tape| tape.handle.pointer);
    let (queries, keys) = layouts.map_or((null_mut(), null_mut()), |(queries, keys)| (queries.0.pointer, keys.0.pointer));
    let mask = mask.map_or(null_mut(), |mask| mask.0.pointer);
    let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(|tensor| tensor.handle.pointer);
    ctx.check(unsafe {
        sys::attn_dot_product_attention(ctx.pointer(), tape, query, key, value, queries, keys, mask, options, output.handle.pointer)
    })
}

/// A Transformer. Reading it is shared between threads; what changes it takes `&mut`.
pub struct Model(Handle<sys::Transformer>);
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL")
}

impl Model {
    pub fn new(ctx: &Context, options: &sys::TransformerOptions) -> Result<Self> {
        let make = |out| ctx.check(unsafe { sys::attn_transformer_create(ctx.pointer(), options, out) });
        Handle::new(sys::attn_transformer_free, make).map(Model)
    }

    pub fn load(ctx: &Context, path: &Path) -> Result<Self> {
        let path = c_path(path);
        let make = |out| ctx.check(unsafe { sys::attn_transformer_load(ctx.pointer(), path.as_ptr(), null(), out) });
        Handle::new(sys::attn_transformer_free, make).map(Model)
    }

    pub fn save(&self, ctx: &Context, path: &Path) -> Result<()> {
        let path = c_path(path);
        ctx.check(unsafe { sys::attn_transformer_save(ctx.pointer(), self.0.pointer, 0, null(), null(), path.as_ptr()) })
    }
}

/// Batches for predicting the next token; it keeps a copy of the tokens.
pub struct Dataset(Handle<sys::Dataset>);
impl Dataset {
    pub fn new(ctx: &Context, tokens: &[i32], options: &sys::DatasetOptions) -> Result<Self> {
        let make = |out| ctx.check(unsafe { sys::attn_dataset_tokens(ctx.pointer(), tokens.as_ptr(), tokens.len() as i64, options, out) });
        Handle::new(sys::attn_dataset_free, make).map(Dataset)
    }
}

/// Borrows the model while it lives, since a step writes the parameters; takes the data set.
pub struct Trainer<'m> {
    handle: Handle<sys::Trainer>,
    model: PhantomData<&'m mut Model>,
}
impl<'m> Trainer<'m> {
    pub fn new(ctx: &Context, model: &'m mut Model, dataset: Dataset, options: &sys::OptimizerOptions) -> Result<Self> {
        let handle = Handle::new(sys::attn_trainer_free, |out| {
            ctx.check(unsafe { sys::attn_trainer_create(ctx.pointer(), model.0.pointer, dataset.0.pointer, options, null(), null(), out) })
        })?;
        Ok(Trainer { handle, model: PhantomData }) // which keeps the data alive: the data set's handle is dropped here
    }

    /// One step; what the report borrows holds until the next.
    pub fn step(&mut self, ctx: &Context) -> Result<sys::TrainerReport> {
        let mut report = defaults(sys::attn_trainer_report_init);
        ctx.check(unsafe { sys::attn_trainer_step(ctx.pointer(), self.handle.pointer, null(), &mut report) })?;
        Ok(report)
    }
}

/// A session that writes. The model may not change meanwhile, so it is borrowed.
pub struct Generator<'m> {
    handle: Handle<sys::Generator>,
    model: PhantomData<&'m Model>,
}
impl<'m> Generator<'m> {
    pub fn new(ctx: &Context, model: &'m Model, options: &sys::GeneratorOptions) -> Result<Self> {
        let make = |out| ctx.check(unsafe { sys::attn_generator_create(ctx.pointer(), model.0.pointer, options, out) });
        Ok(Generator { handle: Handle::new(sys::attn_generator_free, make)?, model: PhantomData })
    }

    /// `count` tokens that go on from the prompt's, fewer when a stop token comes.
    pub fn write(&mut self, ctx: &Context, prompt: &[i32], count: usize) -> Result<Vec<i32>> {
        let generator = self.handle.pointer;
        ctx.check(unsafe { sys::attn_generator_prompt_tokens(ctx.pointer(), generator, prompt.len() as i64, prompt.as_ptr()) })?;
        let (mut token, mut finished, mut written) = (0, 0, Vec::new());
        while written.len() < count && finished == 0 {
            ctx.check(unsafe { sys::attn_generator_step(ctx.pointer(), generator, 1, &mut token, &mut finished) })?;
            written.push(token);
        }
        Ok(written)
    }
}
