#include "fixture.h"

/* How a token is chosen from the logits. */
/* greedy: temperature 0 and top-k 1 take the largest logit, the lowest index on ties */
static void test_greedy(void **state)
{
    (void)state;
    const int64_t target[3] = {2, 5, 1};
    attn_transformer_options o = model_options(0, 2);
    for (int which = 0; which < 2; which++) {
        attn_generator_options g = defaults(3, 16);
        if (which)
            g.top_k = 1;
        else
            g.temperature = 0;
        session s;
        open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
        prompt(&s);
        for (int step = 0; step < 6; step++) {
            int32_t tokens[3], finished[3];
            attn_tensor *logits = recomputed(&s);
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 3, tokens, finished));
            for (int i = 0; i < 3; i++) {
                int64_t best = 0;
                for (int64_t v = 1; v < 11; v++)
                    if (model_get(logits, i * 11 + v) > model_get(logits, i * 11 + best)) best = v;
                assert_int_equal(tokens[i], best);
                assert_int_equal(finished[i], 0);
                s.tokens[i][s.lengths[i]++] = tokens[i];
            }
            attn_tensor_free(logits);
        }
        close_session(&s);
    }
    /* all logits equal: token 0 */
    o.output_bias = 1;
    attn_generator_options g = defaults(1, 16);
    const int64_t one = 1;
    g.temperature = 0;
    session s;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, &one);
    attn_parameters *p = attn_transformer_parameters(s.model);
    for (int64_t i = 0; i < attn_parameters_count(p); i++)
        if (strncmp(attn_parameters_name(p, i), "output.", 7) == 0)
            for (int64_t e = 0; e < model_elements(attn_parameters_tensor(p, i)); e++) model_set(attn_parameters_tensor(p, i), e, 0);
    int32_t token = 7, finished;
    prompt(&s);
    OK(s.ctx, attn_generator_step(s.ctx, s.generator, 1, &token, &finished));
    assert_int_equal(token, 0);
    close_session(&s);
}

typedef struct sampled {
    int32_t tokens[4][MOST];
    int64_t count[4];
    double score[4];
} sampled;

static void sample(const attn_transformer_options *o, const attn_generator_options *g, const int64_t *target, int steps, sampled *out)
{
    session s;
    memset(out, 0, sizeof *out);
    open_session(&s, ATTN_BACKEND_BLAS, o, g, NULL, target);
    prompt(&s);
    for (int i = 0; i < steps; i++) {
        int32_t tokens[4], finished[4];
        OK(s.ctx, attn_generator_step(s.ctx, s.generator, s.count, tokens, finished));
    }
    for (int64_t i = 0; i < s.count; i++)
        OK(s.ctx, attn_generator_result(s.ctx, s.generator, i, 0, MOST, out->tokens[i], &out->count[i], &out->score[i]));
    close_session(&s);
}

/* a seed gives the same tokens again, another seed others, and what one sequence gets does not depend on the others in the batch */
static void test_seeds_and_neighbours(void **state)
{
    (void)state;
    const int64_t target[4] = {3, 3, 6, 1}, other[4] = {3, 5, 2, 2};
    attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(4, MOST);
    sampled a, b;
    g.temperature = 1.5;
    sample(&o, &g, target, 12, &a);
    sample(&o, &g, target, 12, &b);
    assert_memory_equal(&a, &b, sizeof a);
    sample(&o, &g, other, 12, &b); /* sequence 0 has the same prompt */
    assert_memory_equal(a.tokens[0], b.tokens[0], sizeof a.tokens[0]);
    assert_true(memcmp(a.tokens[1], b.tokens[1], sizeof a.tokens[1]) != 0);
    g.sequences = 1;
    sample(&o, &g, target, 12, &b); /* and alone */
    assert_memory_equal(a.tokens[0], b.tokens[0], sizeof a.tokens[0]);
    g.sequences = 4;
    g.seed = 2;
    sample(&o, &g, target, 12, &b);
    assert_true(memcmp(a.tokens[0], b.tokens[0], sizeof a.tokens[0]) != 0);
}

/* draws follow the probabilities of the logits, and top-k and top-p leave out the rest */
static void test_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 3000 };
    const int64_t one = 3;
    attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(1, MOST);
    session s;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, &one);
    attn_tensor *logits = recomputed(&s);
    double probability[11], sum = 0;
    for (int v = 0; v < 11; v++) sum += probability[v] = exp(model_get(logits, v) / 0.7);
    for (int v = 0; v < 11; v++) probability[v] /= sum;
    const struct {
        int64_t top_k;
        double top_p;
    } cases[] = {{0, 1}, {3, 1}, {0, 0.6}, {11, 1}, {99, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int seen[11] = {0};
        double kept = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            int32_t token, finished;
            attn_generator_free(s.generator);
            g.seed = (uint64_t)draw;
            g.temperature = 0.7;
            g.top_k = cases[i].top_k;
            g.top_p = cases[i].top_p;
            OK(s.ctx, attn_generator_create(s.ctx, s.model, &g, &s.generator));
            OK(s.ctx, attn_generator_prompt_tokens(s.ctx, s.generator, 3, s.tokens[0]));
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 1, &token, &finished));
            seen[token]++;
        }
        for (int v = 0; v < 11; v++) {
            int larger = 0;
            double before = 0;
            for (int w = 0; w < 11; w++)
                if (probability[w] > probability[v]) {
                    larger++;
                    before += probability[w];
                }
            int in = (cases[i].top_k == 0 || larger < cases[i].top_k) && before < cases[i].top_p;
            if (!in && seen[v] > 0)
                fail_msg("top_k %d, top_p %g: token %d of rank %d came", (int)cases[i].top_k, cases[i].top_p, v, larger);
            if (in)
                kept += probability[v];
            else
                probability[v] = -probability[v];
        }
        for (int v = 0; v < 11; v++) {
            double p = probability[v] / kept, deviation = sqrt(DRAWS * p * (1 - p));
            if (p > 0 && fabs(seen[v] - DRAWS * p) > 5 * deviation + 1)
                fail_msg("top_k %d, top_p %g: token %d came %d times, expected %g", (int)cases[i].top_k, cases[i].top_p, v, seen[v],
                         DRAWS * p);
            probability[v] = fabs(probability[v]);
        }
    }
    attn_tensor_free(logits);
    close_session(&s);
}

/* with all logits equal, what is drawn shows the random numbers: others for each step, each sequence and each seed */
static void test_streams(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    const int64_t target[2] = {1, 1};
    attn_transformer_options o = model_options(0, 1);
    int32_t drawn[4][STEPS]; /* two seeds, two sequences */
    for (int seed = 0; seed < 2; seed++) {
        attn_generator_options g = defaults(2, MOST);
        session s;
        g.seed = (uint64_t)seed;
        open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
        attn_parameters *p = attn_transformer_parameters(s.model);
        attn_tensor *output = attn_parameters_tensor(p, attn_parameters_find(p, "output.weight"));
        for (int64_t e = 0; e < model_elements(output); e++) model_set(output, e, 0);
        prompt(&s);
        for (int i = 0; i < STEPS; i++) {
            int32_t tokens[2], finished[2];
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
            for (int q = 0; q < 2; q++) drawn[2 * seed + q][i] = tokens[q];
        }
        close_session(&s);
    }
    for (int a = 0; a < 4; a++) {
        int changes = 0;
        for (int i = 1; i < STEPS; i++) changes += drawn[a][i] != drawn[a][i - 1];
        assert_true(changes > STEPS / 2);
        for (int b = 0; b < a; b++) assert_memory_not_equal(drawn[a], drawn[b], sizeof drawn[a]);
    }
}

/* logits that are no numbers stop the sequence they are of: once that has ended, the others go on */
static void test_one_not_finite(void **state)
{
    (void)state;
    enum { BROKEN = 7, STOP = 0 };
    static const int32_t stop = STOP;
    const int64_t target[2] = {1, 2};
    const attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(2, MOST);
    g.stop_count = 1;
    g.stops = &stop;
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++)
        for (int greedy = 0; greedy < 2; greedy++) {
            int32_t tokens[2], finished[2];
            session s;
            g.temperature = greedy ? 0 : 1;
            open_session(&s, backend, &o, &g, NULL, target);
            attn_parameters *p = attn_transformer_parameters(s.model);
            attn_tensor *embedding = attn_parameters_tensor(p, attn_parameters_find(p, "target_embedding.weight"));
            for (int64_t c = 0; c < o.width; c++) {
                model_set(embedding, BROKEN * o.width + c, NAN);
                for (int i = 0; i < 2; i++) s.tokens[i][0] = s.tokens[i][1] = 3;
            }
            prompt(&s);
            OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 2, (int32_t[]){BROKEN, 3}));
            FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished), ATTN_ERROR_NOT_FINITE, "row 0");
            OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 2, (int32_t[]){STOP, 3}));
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
            assert_true(tokens[0] == -1 && finished[0] == 1 && tokens[1] >= 0);
            close_session(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_seeds_and_neighbours),
                                       cmocka_unit_test(test_distribution), cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_one_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
