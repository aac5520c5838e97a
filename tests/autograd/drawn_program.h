#ifndef TESTS_AUTOGRAD_DRAWN_PROGRAM_H
#define TESTS_AUTOGRAD_DRAWN_PROGRAM_H
#include <stdio.h>
#include "autograd/drawn_operations.h"

/* Whole programs: operations, which of them are checkpoints, and what is asked for. */

/* No operation takes a value and a part of it: their gradients would meet. */
static int parts_meet(const drawn_program *p, const drawn_operation *o)
{
    for (int32_t i = 0; i < o->inputs; i++)
        for (int32_t k = 0; k < o->inputs; k++)
            if (o->in[i] >= 0 && o->in[k] >= 0 && p->value[o->in[i]].base == o->in[k]) return 1;
    return 0;
}

static void draw_next(drawn_program *p)
{
    drawn_operation *o = &p->operation[p->operations];
    const int32_t values = p->values;
    if (draw_operation(p, o) && !parts_meet(p, o))
        p->operations++;
    else
        p->values = values;
}

/* logits that nobody else reads may become their own gradient */
static void draw_own_loss(drawn_program *p)
{
    drawn_operation *o = &p->operation[p->operations];
    *o = (drawn_operation){.kind = LINEAR};
    const int32_t x = operand(p, p->rows, 0);
    reads(o, x, 1);
    reads(o, operand(p, p->other, p->value[x].width), 1);
    reads(o, maybe(p, 1, p->other), 1);
    reads(o, -1, 1);
    makes(p, o, p->rows, p->other, 1);
    const int32_t logits = o->out[0];
    p->value[logits].outside = 0;
    p->value[logits].taken = 1;
    p->operations++;
    o = &p->operation[p->operations++];
    *o = (drawn_operation){.kind = LOSS};
    draw_loss(p, o, logits);
}

/* the operation that made a value, -1: none */
static int32_t maker_of(const drawn_program *p, int32_t value)
{
    for (int32_t i = 0; i < p->operations; i++)
        for (int32_t k = 0; k < p->operation[i].outputs; k++)
            if (p->operation[i].out[k] == value) return i;
    return -1;
}

static int read_by(const drawn_operation *o, int32_t value)
{
    for (int32_t k = 0; k < o->inputs; k++)
        if (o->in[k] == value) return 1;
    return 0;
}

static int asked_for(const drawn_program *p, int32_t value)
{
    for (int32_t i = 0; i < p->asked; i++)
        if (p->ask[i] == value) return 1;
    return 0;
}

/* What goes into the operations and comes out of them; 0: more than a record holds, or nothing that a checkpoint could give. */
static int stretch_ends(const drawn_program *p, drawn_stretch *s)
{
    s->inputs = s->outputs = 0;
    for (int32_t i = s->from; i < s->to; i++)
        if (p->operation[i].detached) return 0;
    for (int32_t v = 0; v < p->values; v++) {
        const int32_t maker = maker_of(p, v);
        int inside = 0, outside = asked_for(p, v);
        for (int32_t i = 0; i < p->operations; i++) {
            if (!read_by(&p->operation[i], v)) continue;
            inside |= i >= s->from && i < s->to;
            outside |= i >= s->to;
        }
        if (maker < s->from || maker >= s->to) {
            if (!inside || p->value[v].kind == PARAMETER) continue;
            if (s->inputs == ATTN__RECORD_INPUTS) return 0;
            s->in[s->inputs++] = v;
        } else if (outside) {
            if (p->value[v].kind == PART || p->value[v].watched || s->outputs == ATTN__RECORD_OUTPUTS) return 0;
            s->out[s->outputs++] = v;
        }
    }
    return s->outputs > 0;
}

static int is_output(const drawn_stretch *s, int32_t value)
{
    for (int32_t i = 0; i < s->outputs; i++)
        if (s->out[i] == value) return 1;
    return 0;
}

static void draw_stretch(drawn_program *p)
{
    drawn_stretch *s = &p->stretch[p->stretches];
    const drawn_stretch *outer = p->stretches > 0 ? &p->stretch[0] : NULL;
    s->from = (int32_t)random_integer(&p->random, 0, p->operations);
    s->to = s->from + (int32_t)random_integer(&p->random, 1, 6);
    if (s->to > p->operations || !stretch_ends(p, s)) return;
    /* apart from the first, or within it */
    if (outer != NULL && s->to > outer->from && s->from < outer->to && (s->from < outer->from || s->to > outer->to)) return;
    if (outer != NULL && s->from == outer->from && s->to == outer->to) return;
    for (int32_t v = 0; v < p->values; v++) {
        drawn_value *value = &p->value[v];
        const int32_t maker = maker_of(p, v);
        if (maker >= s->from && maker < s->to && !is_output(s, v)) value->outside = 0;
        if (value->when > s->from && value->when <= s->to) value->when = s->from;
    }
    p->stretches++;
}

/* Which values have a gradient when these are watched; the others are no values of the tape. */
static void find_live(const drawn_program *p, const int32_t *watched, int32_t *live)
{
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        const int32_t maker = maker_of(p, i);
        live[i] = v->kind == PARAMETER ? !v->frozen : watched[i];
        if (maker < 0 || p->operation[maker].detached) continue;
        for (int32_t k = 0; k < p->operation[maker].inputs; k++)
            if (p->operation[maker].in[k] >= 0) live[i] |= live[p->operation[maker].in[k]];
    }
}

static void draw_asked(drawn_program *p)
{
    int32_t watched[VALUES] = {0}, is_live[VALUES], can[VALUES], count = 0;
    for (int32_t i = 0; i < p->values; i++) watched[i] = p->value[i].watched;
    find_live(p, watched, is_live);
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        if (v->kind != PARAMETER && v->kind != PART && !v->taken && is_live[i]) can[count++] = i;
    }
    const int64_t wanted = AMONG(&p->random, 1, 1, 2, 3);
    for (; count > 0 && p->asked < wanted; p->asked++) {
        const int64_t i = random_integer(&p->random, 0, count), late = random_integer(&p->random, 0, count);
        p->ask[p->asked] = p->asked == 0 ? can[count - 1] : can[i > late ? i : late];
        p->ones[p->asked] = drawn_once_in(&p->random, 4);
        p->arriving_gap[p->asked] = AMONG(&p->random, 0, 0, 2);
    }
    p->no_list = drawn_once_in(&p->random, 6);
}

static void draw_program(drawn_program *p, int64_t number)
{
    memset(p, 0, sizeof *p);
    p->random.at = (uint64_t)number << 32;
    p->rows = AMONG(&p->random, 1, 2, 3, 4, 4, 5), p->width = AMONG(&p->random, 2, 4, 4, 6, 8), p->other = AMONG(&p->random, 1, 2, 3, 4, 8);
    p->training = !drawn_once_in(&p->random, 4);
    for (int i = 0; i < 2; i++) new_leaf(p, p->rows, p->width);
    p->value[0].kind = LEAF, p->value[0].watched = 1;
    const int32_t wanted = (int32_t)random_integer(&p->random, 3, OPERATIONS - 1);
    while (p->operations < wanted) {
        if (drawn_once_in(&p->random, 16))
            draw_own_loss(p);
        else
            draw_next(p);
        const drawn_operation *last = &p->operation[p->operations > 0 ? p->operations - 1 : 0];
        for (int32_t k = 0; last->detached && k < last->outputs; k++) { /* computed without a tape, and watched by it from then on */
            drawn_value *v = &p->value[last->out[k]];
            if (v->when == 0) v->watched = drawn_once_in(&p->random, 2), v->when = p->operations;
        }
    }
    draw_asked(p);
    for (int i = 0; i < 3 && p->stretches < STRETCHES; i++) draw_stretch(p);
    for (int s = 0; s < SETS; s++) p->handle[s] = !drawn_once_in(&p->random, 4);
}

static void say(const drawn_program *p, int64_t number)
{
    printf("draw %d:", (int)number);
    for (int32_t i = 0; i < p->operations; i++) {
        const drawn_operation *o = &p->operation[i];
        printf(" ");
        for (int32_t k = 0; k < o->outputs; k++) printf("%s%d", k > 0 ? "," : "", (int)o->out[k]);
        printf("%s%s/%d", o->detached ? "~" : "=", kind_names[o->kind], (int)o->form);
        for (int32_t k = 0; k < o->inputs; k++) {
            const drawn_value *v = o->in[k] >= 0 ? &p->value[o->in[k]] : NULL;
            printf("%c%d%s", k > 0 ? ',' : '(', (int)o->in[k], v == NULL ? "" : v->watched ? "w" : v->kind == PARAMETER ? "p" : "");
        }
        printf(")");
    }
    for (int32_t i = 0; i < p->stretches; i++) printf(", checkpoint %d to %d", (int)p->stretch[i].from, (int)p->stretch[i].to);
    printf(", asked");
    for (int32_t i = 0; i < p->asked; i++) printf(" %d", (int)p->ask[i]);
    printf("\n");
}
#endif
