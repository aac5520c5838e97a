//! Attention and a small model through attn.rs: checked against plain loops, and against what must go wrong.
mod attn;
mod sys;
use attn::{attention, defaults, Context, Dataset, Error, Generator, Inputs, Layout, Mask, Model, Tape, Tensor, Trainer};
use std::error::Error as AnyError;
use std::path::Path;

/// One attention: segments are (first row, rows); every sequence's queries are as many as its keys, or fewer.
struct Case {
    name: &'static str,
    queries: &'static [(usize, usize)],
    keys: &'static [(usize, usize)],
    heads: usize,
    key_heads: usize,
    size: usize,
    value_size: usize,
    causal: bool,
}

/// Output and gradients of query, key and value, row-major like the inputs.
struct Values {
    output: Vec<f64>,
    d_query: Vec<f64>,
    d_key: Vec<f64>,
    d_value: Vec<f64>,
}

fn rows(segments: &[(usize, usize)]) -> usize {
    segments.iter().map(|s| s.1).sum()
}

/// (2.24) and (6.13) to (6.18) in plain loops: query, key, value and the output's gradient to output and gradients.
fn formula(case: &Case, query: &[f32], key: &[f32], value: &[f32], d_output: &[f32]) -> Values {
    let (size, value_size, scale) = (case.size, case.value_size, 1.0 / (case.size as f64).sqrt());
    let zeros = |n: usize| vec![0.0f64; n];
    let mut v = Values { output: zeros(d_output.len()), d_query: zeros(query.len()), d_key: zeros(key.len()), d_value: zeros(value.len()) };
    for ((q_start, m), (k_start, n)) in case.queries.iter().copied().zip(case.keys.iter().copied()) {
        for (head, i) in (0..case.heads).flat_map(|head| (0..m).map(move |i| (head, i))) {
            let q = ((q_start + i) * case.heads + head) * size;
            let o = ((q_start + i) * case.heads + head) * value_size;
            let k = |j: usize| ((k_start + j) * case.key_heads + head / (case.heads / case.key_heads)) * size;
            let w = |j: usize| ((k_start + j) * case.key_heads + head / (case.heads / case.key_heads)) * value_size;
            let seen = if case.causal { (i + n + 1).saturating_sub(m) } else { n };
            let scores: Vec<f64> =
                (0..seen).map(|j| scale * (0..size).map(|c| f64::from(query[q + c]) * f64::from(key[k(j) + c])).sum::<f64>()).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp() / total).collect();
            let d_weights: Vec<f64> =
                (0..seen).map(|j| (0..value_size).map(|c| f64::from(d_output[o + c]) * f64::from(value[w(j) + c])).sum()).collect();
            let mean: f64 = weights.iter().zip(&d_weights).map(|(a, b)| a * b).sum();
            for j in 0..seen {
                let d_score = scale * weights[j] * (d_weights[j] - mean);
                for c in 0..value_size {
                    v.output[o + c] += weights[j] * f64::from(value[w(j) + c]);
                    v.d_value[w(j) + c] += weights[j] * f64::from(d_output[o + c]);
                }
                for c in 0..size {
                    v.d_query[q + c] += d_score * f64::from(key[k(j) + c]);
                    v.d_key[k(j) + c] += d_score * f64::from(query[q + c]);
                }
            }
        }
    }
    v
}

/// Numbers in [-1, 1) that are the same everywhere.
fn numbers(state: &mut u64, count: usize) -> Vec<f32> {
    let mut next = || {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn compare(case: &Case, part: &str, got: &[f32], expected: &[f64]) {
    let largest = expected.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    let error = got.iter().zip(expected).fold(0.0f64, |a, (g, e)| if g.is_nan() { f64::NAN } else { a.max((f64::from(*g) - e).abs()) });
    assert!(error / largest < 1e-5, "{}: {} is off by {}", case.name, part, error / largest);
}

fn segments(list: &[(usize, usize)]) -> Vec<sys::Segment> {
    let segment = |(i, &(start, length)): (usize, &(usize, usize))| sys::Segment {
        start: start as i64,
        length: length as i64,
        first_position: 0,
        sequence_id: i as i64,
    };
    list.iter().enumerate().map(segment).collect()
}

fn check_attention(ctx: &Context, case: &Case) -> Result<(), Error> {
    let shape = |rows: usize, heads: usize, size: usize| [rows as i64, heads as i64, size as i64];
    let query_shape = shape(rows(case.queries), case.heads, case.size);
    let key_shape = shape(rows(case.keys), case.key_heads, case.size);
    let value_shape = shape(rows(case.keys), case.key_heads, case.value_size);
    let output_shape = shape(rows(case.queries), case.heads, case.value_size);
    let count = |shape: &[i64; 3]| shape.iter().product::<i64>() as usize;

    let mut state = 7;
    let [mut query, mut key, mut value, mut d_output] =
        [&query_shape, &key_shape, &value_shape, &output_shape].map(|shape| numbers(&mut state, count(shape)));
    let expected = formula(case, &query, &key, &value, &d_output);
    let mut output = vec![f32::NAN; d_output.len()];
    let mut d_query = vec![f32::NAN; query.len()];
    let mut d_key = vec![f32::NAN; key.len()];
    let mut d_value = vec![f32::NAN; value.len()];
    {
        let q = Tensor::wrap(ctx, &mut query, &query_shape)?;
        let k = Tensor::wrap(ctx, &mut key, &key_shape)?;
        let v = Tensor::wrap(ctx, &mut value, &value_shape)?;
        let mut dq = Tensor::wrap(ctx, &mut d_query, &query_shape)?;
        let mut dk = Tensor::wrap(ctx, &mut d_key, &key_shape)?;
        let mut dv = Tensor::wrap(ctx, &mut d_value, &value_shape)?;
        let mut out = Tensor::wrap(ctx, &mut output, &output_shape)?;
        let d_out = Tensor::wrap(ctx, &mut d_output, &output_shape)?;
        let (queries, keys) = (Layout::new(ctx, &segments(case.queries))?, Layout::new(ctx, &segments(case.keys))?);
        let mask = if case.causal { Some(Mask::causal(ctx)?) } else { None };
        let mut tape = Tape::begin(ctx)?;
        tape.watch(ctx, &q, &mut dq)?;
        tape.watch(ctx, &k, &mut dk)?;
        tape.watch(ctx, &v, &mut dv)?;
        let inputs = Inputs { query: &q, key: &k, value: &v };
        let options = defaults(sys::attn_dot_product_options_init);
        attention(ctx, Some(&mut tape), &inputs, Some((&queries, &keys)), mask.as_ref(), &options, &mut out)?;
        tape.backward(ctx, &out, &d_out)?;
    }
    compare(case, "output", &output, &expected.output);
    compare(case, "d_query", &d_query, &expected.d_query);
    compare(case, "d_key", &d_key, &expected.d_key);
    compare(case, "d_value", &d_value, &expected.d_value);
    Ok(())
}

const LINE: &str = "pack my box with five dozen liquor jugs. ";

fn small_model() -> sys::TransformerOptions {
    sys::TransformerOptions {
        encoder_layers: 0,
        decoder_layers: 1,
        width: 32,
        heads: 2,
        source_vocabulary: 128,
        context: 64,
        norm_placement: sys::PLACEMENT_PRE,
        positions: sys::POSITIONS_LEARNED,
        ..defaults(sys::attn_transformer_options_init)
    }
}

fn tokens(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}

fn train(ctx: &Context, model: &mut Model) -> Result<Vec<f64>, Error> {
    let windows = sys::DatasetOptions { context: 32, batch: 8, ..defaults(sys::attn_dataset_options_init) };
    let adam = sys::OptimizerOptions { rate: 1e-2, clip: 1.0, ..defaults(sys::attn_optimizer_options_init) };
    let data = Dataset::new(ctx, &tokens(&LINE.repeat(40)), &windows)?;
    let mut trainer = Trainer::new(ctx, model, data, &adam)?;
    (0..100).map(|_| trainer.step(ctx).map(|report| report.loss)).collect()
}

fn write(ctx: &Context, model: &Model) -> Result<String, Error> {
    let greedy = sys::GeneratorOptions { temperature: 0.0, ..defaults(sys::attn_generator_options_init) };
    let written = Generator::new(ctx, model, &greedy)?.write(ctx, &tokens("pack"), 28)?;
    Ok(written.iter().map(|&token| char::from(token as u8)).collect())
}

fn fails<T>(status: sys::Status, word: &str, result: Result<T, Error>) {
    let error = result.err().unwrap_or_else(|| panic!("no error, expected {status} with \"{word}\""));
    assert_eq!(error.status, status, "{error}");
    assert!(error.text.contains(word), "no \"{word}\" in \"{error}\"");
}

fn check_errors(ctx: &Context, model: &Model, folder: &Path) -> Result<(), Box<dyn AnyError>> {
    let (mut good, mut narrow, mut result) = (vec![0.0; 32], vec![0.0; 24], vec![0.0; 32]);
    let good = Tensor::wrap(ctx, &mut good, &[4, 1, 8])?;
    let narrow = Tensor::wrap(ctx, &mut narrow, &[4, 1, 6])?;
    let mut result = Tensor::wrap(ctx, &mut result, &[4, 1, 8])?;
    let options = defaults(sys::attn_dot_product_options_init);
    let inputs = Inputs { query: &good, key: &narrow, value: &good };
    fails(sys::ERROR_SHAPE, "key", attention(ctx, None, &inputs, None, None, &options, &mut result));
    let inputs = Inputs { query: &good, key: &good, value: &good };
    let wrong = sys::DotProductOptions { soft_cap: -1.0, ..options };
    fails(sys::ERROR_INVALID_ARGUMENT, "soft_cap", attention(ctx, None, &inputs, None, None, &wrong, &mut result));
    let mut other = vec![0.0; 32];
    let mut other = Tensor::wrap(ctx, &mut other, &[4, 1, 8])?;
    let mut tape = Tape::begin(ctx)?;
    tape.watch(ctx, &good, &mut result)?;
    fails(sys::ERROR_BAD_STATE, "input", tape.watch(ctx, &good, &mut other));

    let broken = folder.join("broken.safetensors");
    std::fs::write(&broken, "no model")?;
    fails(sys::ERROR_BAD_FILE, "broken.safetensors", Model::load(ctx, &broken));
    fails(sys::ERROR_IO, "absent.safetensors", Model::load(ctx, &folder.join("absent.safetensors")));
    fails(sys::ERROR_SHAPE, "width", Model::new(ctx, &sys::TransformerOptions { heads: 3, ..small_model() }));
    let short = sys::GeneratorOptions { capacity: 8, ..defaults(sys::attn_generator_options_init) };
    fails(sys::ERROR_FULL, "cache rows left", Generator::new(ctx, model, &short)?.write(ctx, &tokens("pack"), 9));
    let unknown = sys::ContextOptions { backend: 9, ..defaults(sys::attn_context_options_init) };
    fails(sys::ERROR_INVALID_ARGUMENT, "context", Context::new(&unknown));
    Ok(())
}

/// The model is only read: each thread has a context of its own, and writes the same.
fn check_threads(model: &Model, expected: &str) {
    let one = || Context::new(&sys::ContextOptions { threads: 1, ..defaults(sys::attn_context_options_init) });
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(move || write(&one()?, model))).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("a thread ends").expect("it writes"), expected);
        }
    });
}

fn main() -> Result<(), Box<dyn AnyError>> {
    println!("libattn {}", attn::version());
    const TWO: &[(usize, usize)] = &[(0, 3), (3, 70)];
    const MORE: &[(usize, usize)] = &[(0, 9), (9, 100)];
    let cases = [
        Case { name: "full", queries: &[(0, 5)], keys: &[(0, 7)], heads: 2, key_heads: 2, size: 8, value_size: 8, causal: false },
        Case { name: "causal", queries: TWO, keys: TWO, heads: 2, key_heads: 2, size: 16, value_size: 16, causal: true },
        Case { name: "grouped", queries: TWO, keys: MORE, heads: 4, key_heads: 2, size: 8, value_size: 12, causal: true },
        Case { name: "unseen", queries: &[(0, 9)], keys: &[(0, 4)], heads: 1, key_heads: 1, size: 8, value_size: 8, causal: true },
    ];
    for backend in [sys::BACKEND_BLAS, sys::BACKEND_REFERENCE] {
        let ctx = Context::new(&sys::ContextOptions { backend, ..defaults(sys::attn_context_options_init) })?;
        for case in &cases {
            check_attention(&ctx, case)?;
        }
    }

    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let ctx = Context::new(&sys::ContextOptions { seed: 1, ..defaults(sys::attn_context_options_init) })?;
    let mut model = Model::new(&ctx, &small_model())?;
    let losses = train(&ctx, &mut model)?;
    println!("loss {:.3} to {:.3}", losses[0], losses[losses.len() - 1]);
    assert!(losses[losses.len() - 1] < 0.3 * losses[0], "{losses:?}");
    let text = write(&ctx, &model)?;
    println!("written: {text}");
    assert_eq!(text, LINE[4..32]);

    let path = folder.join("model.safetensors");
    model.save(&ctx, &path)?;
    let loaded = Model::load(&ctx, &path)?;
    drop(model);
    assert_eq!(write(&ctx, &loaded)?, text);
    check_threads(&loaded, &text);
    check_errors(&ctx, &loaded, &folder)?;
    println!("all equal");
    Ok(())
}
