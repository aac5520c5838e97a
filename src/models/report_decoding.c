#include <string.h>
#include "report.h"

#define MOST_ROWS (INT64_C(1) << 44) /* of a cache */

/* One stretch of decoding as a generator runs it: what it takes from the scratch, in the same order (generation/session.c, choose.c). */
typedef struct session {
    attn__dry *dry;
    const attn__transformer_plan *plan;
    attn__call call;
    attn__layer_cache *caches;                /* [decoder layers] of addresses nobody reads */
    attn_segment *step, *keys, *memory;       /* [slots] */
    int64_t *slot;                            /* [slots] */
    attn__recurrent_cache recurrent;          /* of a recurrent model */
    int64_t sequences, beam, slots, capacity; /* slots: of the caches, sequences * beam */
    int64_t caches_bytes;                     /* of the arrays */
} session;

static attn_status take(const session *s, int64_t a, int64_t b, int64_t c)
{
    int64_t bytes = 0;
    attn__grow(&bytes, a, b, c);
    return attn__scratch(s->dry->ctx, bytes) != NULL ? ATTN_OK : attn__arena_status(s->dry->ctx->scratch);
}

static view cache(const session *s, int64_t rows, int64_t columns)
{
    return (view){(void *)(uintptr_t)64, rows, 1, columns, columns, 0, s->plan->options.dtype, 0};
}

static attn_status open_recurrent(session *s, int64_t source_rows)
{
    const attn__recurrent_model *m = s->plan->recurrent;
    s->recurrent.now = s->recurrent.next = cache(s, s->slots, attn__recurrent_state_width(m));
    s->recurrent.memory = cache(s, source_rows, m->memory_width);
    s->recurrent.keys = m->has_key ? cache(s, source_rows, m->width) : s->recurrent.memory;
    return ATTN_OK;
}

static attn_status open_session(session *s, int64_t source_rows)
{
    const attn__stack *decoder = &s->plan->decoder;
    void *memory = NULL;
    int64_t bytes = 0, rows = 0;
    attn__grow(&s->slots, s->sequences, s->beam, 1);
    attn__grow(&rows, s->slots, s->capacity, 1);
    if (rows > MOST_ROWS) return attn__fail_memory(s->dry->ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    attn__grow(&bytes, s->slots, 1, 3 * (int64_t)sizeof(attn_segment) + (int64_t)sizeof(int64_t));
    attn__grow(&bytes, decoder->side.layers, (int64_t)sizeof(attn__layer_cache), 1);
    attn_status status = attn__allocate_zero(s->dry->ctx->memory, bytes, &memory);
    if (status != ATTN_OK) return attn__fail_memory(s->dry->ctx, status, "a decoding session");
    s->caches_bytes = bytes;
    s->caches = memory;
    s->step = (attn_segment *)(s->caches + decoder->side.layers);
    s->keys = s->step + s->slots;
    s->memory = s->keys + s->slots;
    s->slot = (int64_t *)(s->memory + s->slots);
    if (s->plan->recurrent != NULL) return open_recurrent(s, source_rows);
    for (int64_t i = 0; status == ATTN_OK && i < decoder->side.layers; i++) {
        const attn_attention_options *self = &decoder->layers[i].self.options, *cross = &decoder->layers[i].cross.options;
        int64_t state;
        status = attn__attention_state_columns(s->dry->ctx, &decoder->layers[i].self, &state);
        s->caches[i].self.key = cache(s, state > 0 ? s->slots : rows, state > 0 ? state : self->key_heads * self->head_size);
        s->caches[i].self.value = cache(s, state > 0 ? s->slots : rows, state > 0 ? state : self->key_heads * self->value_head_size);
        s->caches[i].cross.key = cache(s, source_rows, cross->key_heads * cross->head_size);
        s->caches[i].cross.value = cache(s, source_rows, cross->key_heads * cross->value_head_size);
    }
    return status;
}

/* caches, tokens, logits and what is kept of each sequence */
static int64_t generator_bytes(const session *s, int has_encoder)
{
    enum { HANDLE = 1024, SEQUENCE = 64, ALIGNED = 128 };
    const int64_t element = attn__dtype_bytes(s->plan->options.dtype);
    int64_t sum = HANDLE;
    if (s->plan->recurrent != NULL) {
        attn__grow(&sum, 2 * s->slots, s->recurrent.now.width, element);
        if (s->plan->recurrent->has_attention)
            attn__grow(&sum, s->recurrent.memory.rows,
                       s->recurrent.memory.width + (s->plan->recurrent->has_key ? s->recurrent.keys.width : 0), element);
        attn__grow(&sum, 2, ALIGNED, 1);
    }
    for (int64_t i = 0; s->plan->recurrent == NULL && i < s->plan->decoder.side.layers; i++) {
        const attn__attention_cache *self = &s->caches[i].self, *cross = &s->caches[i].cross;
        attn__grow(&sum, self->key.rows, self->key.width + self->value.width, element);
        if (has_encoder) attn__grow(&sum, cross->key.rows, cross->key.width + cross->value.width, element);
        attn__grow(&sum, 1, 2 * ALIGNED + (int64_t)sizeof(attn__layer_cache), 1);
    }
    attn__grow(&sum, s->sequences, SEQUENCE, 1);
    attn__grow(&sum, s->sequences, s->capacity, (int64_t)sizeof(int32_t));
    attn__grow(&sum, s->slots, s->plan->output.out, element);
    return sum;
}

/* tokens of the segments, whose keys end with them, to the logits of each segment's last row */
static attn_status feed(const session *s, attn__segments segments, attn__segments memory)
{
    const attn__transformer_plan *plan = s->plan;
    attn_context *ctx = s->dry->ctx;
    const view tokens = {(void *)(uintptr_t)64, segments.rows, 1, 1, 1, 0, ATTN_INT32, 0};
    const attn__segments keys = {segments.count, s->slots * s->capacity, s->keys};
    attn__stream stream = {.segments = segments};
    attn__value hidden, last, logits;
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < 3; i++) status = take(s, segments.count, (int64_t)sizeof(attn_segment), 1);
    if (status == ATTN_OK) status = attn__places_expand(ctx, ctx->scratch, segments, segments.rows, &stream.places);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, tokens.rows, plan->output.in, plan->options.dtype, &hidden);
    if (status == ATTN_OK)
        status = plan->recurrent != NULL
                     ? attn__transformer_decode_recurrent(&s->call, plan, &tokens, &stream, memory, &s->recurrent, s->slot, &hidden)
                     : attn__transformer_decode(&s->call, plan, &tokens, &stream, keys, memory, s->caches, s->slot, &hidden);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, segments.count, plan->output.in, plan->options.dtype, &last);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, segments.count, plan->output.out, plan->options.dtype, &logits);
    return status == ATTN_OK ? attn__transformer_logits(&s->call, plan, &last, &logits) : status;
}

/* keys and values of the encoder's rows */
static attn_status remember(const session *s, attn__segments source)
{
    attn_context *ctx = s->dry->ctx;
    attn__batch_views batch;
    attn__value memory;
    memset(&batch, 0, sizeof batch);
    batch.source = (view){(void *)(uintptr_t)64, source.rows, 1, 1, 1, 0, ATTN_INT32, 0};
    batch.source_stream.segments = source;
    attn_status status = attn__places_expand(ctx, ctx->scratch, source, source.rows, &batch.source_stream.places);
    if (status == ATTN_OK) status = take(s, source.count, (int64_t)sizeof(attn_segment), 1);
    attn__mark opened = attn__arena_mark(ctx->scratch); /* the batch stays, what is computed from it is in the caches */
    if (status == ATTN_OK && s->plan->recurrent != NULL) {
        status = attn__transformer_remember_recurrent(&s->call, s->plan, &batch, &s->recurrent, s->slot);
        attn__arena_rewind(ctx->scratch, opened);
        return status;
    }
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, source.rows, s->plan->options.width, s->plan->options.dtype, &memory);
    if (status == ATTN_OK) status = attn__transformer_encode(&s->call, s->plan, &batch, &memory, NULL);
    for (int64_t i = 0; status == ATTN_OK && i < s->plan->decoder.side.layers; i++) {
        attn__mark mark = attn__arena_mark(ctx->scratch);
        status = attn__attention_remember(&s->call, &s->plan->decoder.layers[i].cross, &memory, &s->caches[i].cross);
        attn__arena_rewind(ctx->scratch, mark);
    }
    attn__arena_rewind(ctx->scratch, opened);
    return status;
}

static attn_status prompt(const session *s, attn__segments source, attn__segments target)
{
    attn_status status = take(s, target.rows, 2 * (int64_t)sizeof(int64_t), 1); /* the batch as it is checked */
    if (status == ATTN_OK) status = take(s, target.count, (int64_t)sizeof(attn_segment), 1);
    for (int64_t i = 0; i < s->sequences; i++) s->slot[i] = i * s->beam;
    for (int64_t i = 0; i < s->sequences; i++) s->keys[i] = (attn_segment){i * s->beam * s->capacity, target.at[i].length, 0, i};
    if (status == ATTN_OK) status = take(s, s->sequences, (int64_t)sizeof(int64_t), 1);
    if (status == ATTN_OK && s->plan->has_encoder) status = remember(s, source);
    return status == ATTN_OK ? feed(s, target, source) : status;
}

/* the choice of a token for each sequence, and its score */
static attn_status choose(const session *s, const attn__kernels *kernels)
{
    attn_context *ctx = s->dry->ctx;
    const view logits = cache(s, s->sequences, s->plan->output.out);
    view log_p = logits;
    attn_status status = take(s, s->sequences, (int64_t)sizeof(int32_t), 1);
    if (status == ATTN_OK) status = take(s, s->sequences, (int64_t)sizeof(double), 1);
    if (status == ATTN_OK) status = kernels->next_token(ctx, &logits, 1, 0, 1, NULL, NULL);
    const int64_t each[4] = {sizeof(int32_t), sizeof(int64_t), sizeof(attn_segment), sizeof(double)};
    for (int i = 0; status == ATTN_OK && i < 4; i++) status = take(s, s->sequences, each[i], 1);
    if (status == ATTN_OK) status = take(s, logits.rows, logits.width, attn__dtype_bytes(logits.dtype));
    return status == ATTN_OK ? kernels->softmax(ctx, &logits, 1, &log_p) : status;
}

/* the candidates of beam search, one sequence after another (generation/beam_step.c) */
static attn_status choose_beams(const session *s, const attn__kernels *kernels)
{
    attn_context *ctx = s->dry->ctx;
    const view logits = cache(s, s->beam, s->plan->output.out);
    view log_p = logits;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = take(s, logits.rows, logits.width, attn__dtype_bytes(logits.dtype));
    if (status == ATTN_OK) status = kernels->softmax(ctx, &logits, 1, &log_p);
    attn__arena_rewind(ctx->scratch, mark);
    const int64_t each[4] = {sizeof(int32_t), sizeof(int64_t), sizeof(int64_t), sizeof(attn_segment)};
    for (int i = 0; status == ATTN_OK && i < 4; i++) status = take(s, s->slots, each[i], 1);
    return status;
}

/* one token for each sequence, or for each of its hypotheses: chosen, scored, fed */
static attn_status step(const session *s, attn__segments source, attn__segments target, int full)
{
    const attn__kernels *kernels;
    const attn__segments segments = {s->slots, s->slots, s->step}, memory = {s->slots, source.rows, s->memory};
    attn_status status = attn__kernels_for(s->dry->ctx, s->plan->options.dtype, &kernels);
    for (int64_t i = 0; i < s->slots; i++) {
        const attn_segment *prompt = &target.at[i / s->beam];
        s->step[i] = (attn_segment){i, 1, prompt->length, i / s->beam};
        s->keys[i] = (attn_segment){i * s->capacity, full ? s->capacity : prompt->length + 1, 0, i / s->beam};
        s->memory[i] = source.at[i / s->beam];
        s->slot[i] = i;
    }
    if (status == ATTN_OK) status = s->beam > 1 ? choose_beams(s, kernels) : choose(s, kernels);
    return status == ATTN_OK ? feed(s, segments, memory) : status;
}

static attn_status run(const session *s, attn__segments source, attn__segments target, attn__reading *r)
{
    attn_context *ctx = s->dry->ctx;
    int64_t before = ctx->counts.multiply_adds;
    attn__arena_reset(ctx->scratch);
    attn_status status = prompt(s, source, target);
    r->prompt = ctx->counts.multiply_adds - before;
    attn__arena_reset(ctx->scratch);
    before = ctx->counts.multiply_adds;
    if (status == ATTN_OK) status = step(s, source, target, 0);
    r->decode = ctx->counts.multiply_adds - before;
    attn__arena_reset(ctx->scratch);
    return status == ATTN_OK ? step(s, source, target, 1) : status; /* the last one there is room for */
}

attn_status attn__read_decoding(attn_context *ctx, attn__dry *dry, attn__segments source, attn__segments target, int64_t beam,
                                int64_t capacity, attn__reading *r)
{
    session s = {.dry = dry, .plan = attn__transformer_plan_of(dry->model), .sequences = target.count, .beam = beam, .capacity = capacity};
    s.call = (attn__call){dry->ctx, NULL, dry->model->parameters};
    if (!s.plan->has_encoder) source = (attn__segments){target.count, 0, target.at};
    int64_t longest = attn__longest(source), room, live, peak, allocations;
    attn__memory_read(dry->ctx->memory, &live, &peak, &allocations);
    attn_status status = open_session(&s, source.rows);
    if (status == ATTN_OK) status = run(&s, source, target, r);
    if (s.caches != NULL) r->caches = generator_bytes(&s, s.plan->has_encoder);
    attn__deallocate(dry->ctx->memory, s.caches, s.caches_bytes);
    if (longest < capacity) longest = capacity;
    room = s.plan->output.out * (int64_t)(sizeof(float) + sizeof(int32_t)); /* of the choice of a token */
    r->need = (attn__need){.scratch = attn__arena_peak(dry->ctx->scratch), .worker = attn__worker_room(ctx, s.plan, longest)};
    attn__grow(&r->need.scratch, ATTN__NO_LAYOUT, 1, 1);
    if (r->need.worker < room) r->need.worker = room;
    r->handles = live;
    attn__grow(&r->handles, dry->model->parameters->constant_bytes, 1, 1);
    attn__memory_read(dry->ctx->memory, &live, &r->plan, &allocations);
    return status;
}

attn_status attn__decoding_need(attn_context *ctx, const attn__transformer_plan *plan, attn__segments source, attn__segments target,
                                int64_t beam, int64_t capacity, attn__need *out)
{
    attn__dry dry;
    attn__reading reading = {0};
    attn_status status = attn__dry_open(ctx, &plan->options, plan->heads, &dry);
    if (status != ATTN_OK) return status;
    status = attn__dry_masks(&dry, plan);
    if (status == ATTN_OK) status = attn__read_decoding(ctx, &dry, source, target, beam, capacity, &reading);
    if (status != ATTN_OK) return attn__dry_fail(ctx, &dry, status);
    attn__dry_close(&dry);
    *out = reading.need;
    return ATTN_OK;
}
