//! The declarations of libattn, as they stand in attn/*.h: those this binding uses. tests/ffi/test_declarations.py compares them with the
//! headers.
#![allow(dead_code)]
use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_void};

pub type Status = i32;
pub const OK: Status = 0;
pub const ERROR_INVALID_ARGUMENT: Status = -1;
pub const ERROR_SHAPE: Status = -2;
pub const ERROR_BAD_STATE: Status = -6;
pub const ERROR_FULL: Status = -22;
pub const ERROR_IO: Status = -40;
pub const ERROR_BAD_FILE: Status = -41;
pub const FLOAT32: i32 = 1;
pub const ALIGN_LAST: i32 = 0;
pub const BACKEND_BLAS: i32 = 0;
pub const BACKEND_REFERENCE: i32 = 1;
pub const PLACEMENT_PRE: i32 = 1;
pub const POSITIONS_LEARNED: i32 = 2;

/// Opaque types: only pointers to them exist.
macro_rules! opaque {
    ($($name:ident)*) => { $(
        #[repr(C)]
        pub struct $name {
            nothing: [u8; 0],
            not_sent_by_itself: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )* };
}
opaque!(Context Tensor Layout Mask Tape Gradients Transformer Dataset Trainer Generator);
opaque!(Batch LoadOptions ScheduleOptions TrainerOptions Allocator); // of which this binding gives none

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    pub start: i64,
    pub length: i64,
    pub first_position: i64,
    pub sequence_id: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ContextOptions {
    pub struct_size: u64,
    pub backend: i32,
    pub threads: i32,
    pub seed: u64,
    pub memory_cap: i64,
    pub guard_blas: i32,
    pub reserved: i32,
    pub allocator: *const Allocator,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DotProductOptions {
    pub struct_size: u64,
    pub scale: f64,
    pub dropout: f64,
    pub soft_cap: f64,
    pub site: u64,
    pub derive_scale: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TapeOptions {
    pub struct_size: u64,
    pub training: i32,
    pub reserved: i32,
    pub seed: u64,
    pub step: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TransformerOptions {
    pub struct_size: u64,
    pub encoder_layers: i64,
    pub decoder_layers: i64,
    pub width: i64,
    pub heads: i64,
    pub key_heads: i64,
    pub head_size: i64,
    pub feed_forward: i64,
    pub decoder_width: i64,
    pub decoder_heads: i64,
    pub decoder_feed_forward: i64,
    pub source_vocabulary: i64,
    pub target_vocabulary: i64,
    pub context: i64,
    pub patch_values: i64,
    pub segment_types: i64,
    pub dtype: i32,
    pub norm: i32,
    pub norm_placement: i32,
    pub final_norm: i32,
    pub activation: i32,
    pub gated: i32,
    pub learned_beta: i32,
    pub parallel_block: i32,
    pub positions: i32,
    pub tie: i32,
    pub attention_bias: i32,
    pub feed_forward_bias: i32,
    pub norm_bias: i32,
    pub output_bias: i32,
    pub output_head: i32,
    pub embedding_norm: i32,
    pub initialisation: i32,
    pub checkpoint_layers: i32,
    pub norm_epsilon: f64,
    pub embedding_scale: f64,
    pub initialisation_scale: f64,
    pub swish_beta: f64,
    pub rotary_base: f64,
    pub soft_cap: f64,
    pub dropout_embedding: f64,
    pub dropout_attention: f64,
    pub dropout_sublayer: f64,
    pub dropout_activation: f64,
    pub position_buckets: i64,
    pub position_reach: i64,
    pub rotated: i64,
    pub rotary_pairing: i32,
    pub rotary_scaling: i32,
    pub scaled_scores: i32,
    pub query_key_norm: i32,
    pub gated_attention: i32,
    pub reserved: i32,
    pub rotary_factor: f64,
    pub rotary_context: f64,
    pub rotary_low: f64,
    pub rotary_high: f64,
    pub rotary_magnitude: f64,
    pub recurrence: i32,
    pub both_ways: i32,
    pub decoder_attention: i32,
    pub decoder_score: i32,
    pub global_projections: i32,
    pub form: i32,
    pub features: i64,
    pub feature_seed: i64,
    pub projected: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DatasetOptions {
    pub struct_size: u64,
    pub context: i64,
    pub batch: i64,
    pub seed: u64,
    pub order: i32,
    pub reserved: i32,
    pub first: f64,
    pub last: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct OptimizerOptions {
    pub struct_size: u64,
    pub optimizer: i32,
    pub no_decay: i32,
    pub rate: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub weight_decay: f64,
    pub l2: f64,
    pub clip: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TrainerReport {
    pub struct_size: u64,
    pub step: i64,
    pub tokens: i64,
    pub loss: f64,
    pub unsmoothed_loss: f64,
    pub penalty: f64,
    pub rate: f64,
    pub gradient_norm: f64,
    pub skipped: i32,
    pub reserved: i32,
    pub layer_count: i64,
    pub layer_norms: *const f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GeneratorOptions {
    pub struct_size: u64,
    pub sequences: i64,
    pub beam: i64,
    pub capacity: i64,
    pub temperature: f64,
    pub top_p: f64,
    pub length_penalty: f64,
    pub top_k: i64,
    pub seed: u64,
    pub stop_count: i64,
    pub stops: *const i32,
}

#[link(name = "attn")]
extern "C" {
    pub fn attn_version() -> *const c_char;
    pub fn attn_status_name(status: Status) -> *const c_char;
    pub fn attn_context_options_init(options: *mut ContextOptions, size: u64) -> Status;
    pub fn attn_context_create(options: *const ContextOptions, out: *mut *mut Context) -> Status;
    pub fn attn_context_free(ctx: *mut Context);
    pub fn attn_context_last_error(ctx: *const Context) -> *const c_char;
    pub fn attn_tensor_wrap(
        ctx: *mut Context, dtype: i32, rank: i32, shape: *const i64, strides: *const i64, data: *mut c_void, out: *mut *mut Tensor,
    ) -> Status;
    pub fn attn_tensor_free(tensor: *mut Tensor);
    pub fn attn_layout_create(ctx: *mut Context, capacity: i64, out: *mut *mut Layout) -> Status;
    pub fn attn_layout_set(ctx: *mut Context, layout: *mut Layout, count: i64, segments: *const Segment) -> Status;
    pub fn attn_layout_free(layout: *mut Layout);
    pub fn attn_mask_causal(ctx: *mut Context, alignment: i32, out: *mut *mut Mask) -> Status;
    pub fn attn_mask_free(mask: *mut Mask);
    pub fn attn_tape_options_init(options: *mut TapeOptions, size: u64) -> Status;
    pub fn attn_tape_create(ctx: *mut Context, out: *mut *mut Tape) -> Status;
    pub fn attn_tape_free(tape: *mut Tape);
    pub fn attn_tape_begin(ctx: *mut Context, tape: *mut Tape, options: *const TapeOptions) -> Status;
    pub fn attn_tape_watch(ctx: *mut Context, tape: *mut Tape, input: *const Tensor, gradient: *mut Tensor) -> Status;
    pub fn attn_tape_backward(
        ctx: *mut Context, tape: *mut Tape, count: i64, outputs: *const *const Tensor, output_gradients: *const *const Tensor,
        gradients_count: i64, gradients: *const *mut Gradients,
    ) -> Status;
    pub fn attn_dot_product_options_init(options: *mut DotProductOptions, size: u64) -> Status;
    pub fn attn_dot_product_attention(
        ctx: *mut Context, tape: *mut Tape, query: *const Tensor, key: *const Tensor, value: *const Tensor, query_layout: *const Layout,
        key_layout: *const Layout, mask: *const Mask, options: *const DotProductOptions, output: *mut Tensor,
    ) -> Status;
    pub fn attn_transformer_options_init(options: *mut TransformerOptions, size: u64) -> Status;
    pub fn attn_transformer_create(ctx: *mut Context, options: *const TransformerOptions, out: *mut *mut Transformer) -> Status;
    pub fn attn_transformer_free(model: *mut Transformer);
    pub fn attn_transformer_save(
        ctx: *mut Context, model: *const Transformer, count: i64, keys: *const *const c_char, values: *const *const c_char,
        path: *const c_char,
    ) -> Status;
    pub fn attn_transformer_load(ctx: *mut Context, path: *const c_char, options: *const LoadOptions, out: *mut *mut Transformer) -> Status;
    pub fn attn_dataset_options_init(options: *mut DatasetOptions, size: u64) -> Status;
    pub fn attn_dataset_tokens(
        ctx: *mut Context, tokens: *const i32, count: i64, options: *const DatasetOptions, out: *mut *mut Dataset,
    ) -> Status;
    pub fn attn_dataset_free(dataset: *mut Dataset);
    pub fn attn_optimizer_options_init(options: *mut OptimizerOptions, size: u64) -> Status;
    pub fn attn_trainer_create(
        ctx: *mut Context, model: *mut Transformer, dataset: *mut Dataset, optimizer: *const OptimizerOptions,
        schedule: *const ScheduleOptions, options: *const TrainerOptions, out: *mut *mut Trainer,
    ) -> Status;
    pub fn attn_trainer_free(trainer: *mut Trainer);
    pub fn attn_trainer_report_init(report: *mut TrainerReport, size: u64) -> Status;
    pub fn attn_trainer_step(ctx: *mut Context, trainer: *mut Trainer, batch: *const Batch, report: *mut TrainerReport) -> Status;
    pub fn attn_generator_options_init(options: *mut GeneratorOptions, size: u64) -> Status;
    pub fn attn_generator_create(
        ctx: *mut Context, model: *const Transformer, options: *const GeneratorOptions, out: *mut *mut Generator,
    ) -> Status;
    pub fn attn_generator_free(generator: *mut Generator);
    pub fn attn_generator_prompt_tokens(ctx: *mut Context, generator: *mut Generator, count: i64, tokens: *const i32) -> Status;
    pub fn attn_generator_step(ctx: *mut Context, generator: *mut Generator, count: i64, tokens: *mut i32, finished: *mut i32) -> Status;
}
