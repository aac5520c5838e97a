#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H
#include <attn/attn.h>

/* Every public function, every wrong call. A row builds one valid call, argument by argument; what an argument is (a handle, an output, an
   options struct ...) says by itself how it can be wrong, and the row adds what is special. Each wrong call must give its status, a text
   that names the argument, what it got and what was expected, and must write nothing; the valid call must work after it, with the same
   results. tests/calls/run-rows.sh finds exported functions without a row. */
#define ROW(t, function, call) calls_row(t, #function, call)
#define NOTED(function) ((void)(function)) /* a row without a status: its asserts follow */

enum { CALLS_SLOTS = 14, CALLS_GUARDS = 40 };
typedef union slot {
    void *p;
    int64_t i;
    double d;
} slot;
typedef attn_status calls_function(const slot *a);

enum {
    CONTEXT,
    TENSOR,
    LAYOUT,
    MASK,
    PARAMETERS,
    GRADIENTS,
    TAPE,
    ATTENTION,
    ENCODER,
    DECODER,
    TRANSFORMER,
    OPTIMIZER,
    TRAINER,
    VOCABULARY,
    DATASET,
    GENERATOR,
    HANDLE_KINDS,
    OUTPUT_KIND = HANDLE_KINDS, /* a tensor that is written */
    NUMBER,
    POINTER, /* of the caller's memory */
    MADE,    /* a place for a new object */
    OPTIONS,
    REPORT
};
/* flags of arguments */
enum {
    NULLABLE = 1,
    LEADS = 2,    /* the other tensors follow its type and extents: texts may name them */
    INTEGERS = 4, /* tokens or labels */
    ANY_ROWS = 8, /* one row more is as good */
    ANY_WIDTH = 16,
    IS_MATRIX = 32,
    IS_VECTOR = 64,
    IS_HEADS = 128,
    ANY_FORM = 512, /* looked at as a handle alone: any shape, any state */
    VARIES = 256    /* of a row: valid calls need not give the same bits */
};

typedef struct argument {
    const char *name;
    int kind, flags;
    uint64_t size, smallest; /* of options and reports */
    void (*release)(void *); /* of what a MADE holds */
    slot valid;
} argument;

typedef struct guard {
    unsigned char *at, *before, *first; /* first: after the first valid call */
    uint64_t bytes, struct_size;        /* struct_size: of a report */
    int output;                         /* 1: full of a pattern before every call */
} guard;

struct calls_memory; /* what calls_close gives back */

typedef struct calls {
    attn_context *ctx;
    void *live[HANDLE_KINDS], *freed[HANDLE_KINDS];
    const char *name;
    calls_function *call;
    void (*before)(struct calls *t); /* brings the state each call of the row needs */
    void *user;
    argument at[CALLS_SLOTS];
    slot arguments[CALLS_SLOTS];
    int count, flags, started, guards;
    guard guarded[CALLS_GUARDS];
    const void *loose;     /* the next wrong call may write here */
    const char *figure_of; /* the argument that the next wrong call gives a number, */
    double figure;         /* which its text must say */
    attn_tape *new_tape, *spent_tape;
    unsigned char *broken; /* memory of wrong structs */
    void *spare;           /* of wrong tensors */
    struct calls_memory *memory;
    long rows, wrong, failures;
} calls;

calls *calls_open(int32_t backend);
void calls_close(calls *t); /* everything that was allocated must have been given back */

/* memory of 64 KB, zeroed, that lives until calls_close; tensors over it: random numbers within 0.5 around 1, integers 0 */
void *calls_memory(calls *t);
attn_tensor *calls_tensor(calls *t, int32_t dtype, int32_t rank, const int64_t *shape);
attn_tensor *calls_over(calls *t, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides, void *data);
#define FLOATS(t, ...) calls_tensor(t, ATTN_FLOAT32, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})
#define OF_TYPE(t, dtype, ...) calls_tensor(t, dtype, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

void calls_row(calls *t, const char *name, calls_function *call);
/* arguments, in order */
void arg_context(calls *t);
void arg_handle(calls *t, const char *name, int kind, const void *handle, int flags);
void arg_tape(calls *t, attn_tape *tape);
void arg_input(calls *t, const char *name, const attn_tensor *tensor, int flags);
void arg_output(calls *t, const char *name, attn_tensor *tensor, int flags);
void arg_number(calls *t, const char *name, int64_t value);
void arg_real(calls *t, const char *name, double value);
void arg_made(calls *t, const char *name, void (*release)(void *));
void arg_pointer(calls *t, const char *name, const void *pointer, int flags); /* read */
void arg_result(calls *t, const char *name, uint64_t bytes, int flags);       /* written: a place full of a pattern */
void arg_options(calls *t, const char *name, const void *options, uint64_t size, uint64_t smallest);
void arg_report(calls *t, const char *name, uint64_t size, int flags);
void guard_memory(calls *t, const void *at, uint64_t bytes); /* must never change */
void guard_written(calls *t, void *at, uint64_t bytes);      /* as an output */
void guard_parameters(calls *t, attn_parameters *parameters);
void *place_of(calls *t, int index); /* what argument `index` of the valid call is */

/* the valid call, then every argument broken by what it is */
void check_row(calls *t);
void accept_row(calls *t); /* the valid call again */
/* one argument in another way; word: what the text must name, NULL: any argument of the row */
void accept_pointer(calls *t, int index, const void *pointer);
void wrong_pointer(calls *t, int index, const void *pointer, attn_status status, const char *word);
void wrong_number(calls *t, int index, int64_t value, attn_status status, const char *word);
void wrong_real(calls *t, int index, double value, attn_status status, const char *word);
/* a field of the struct at `index` */
void wrong_field(calls *t, int index, uint64_t offset, uint64_t bytes, const void *value, attn_status status, const char *field);
#define WRONG_INT32(t, index, type, field, value, status) wrong_field(t, index, offsetof(type, field), 4, &(int32_t){value}, status, #field)
#define WRONG_INT64(t, index, type, field, value, status) wrong_field(t, index, offsetof(type, field), 8, &(int64_t){value}, status, #field)
#define WRONG_REAL(t, index, type, field, value, status) wrong_field(t, index, offsetof(type, field), 8, &(double){value}, status, #field)
#define WRONG_POINTER_FIELD(t, index, type, field, value, status) \
    wrong_field(t, index, offsetof(type, field), sizeof(void *), &(const void *){value}, status, #field)
/* NaN and both infinities, then what is below least and above most (NAN: no such limit); then the limits, wrong ones or as good as any */
enum { LEAST_IS_WRONG = 1, MOST_IS_WRONG = 2 };
void wrong_reals(calls *t, int index, uint64_t offset, double least, double most, int wrong_ends, const char *field);
#define WRONG_REALS(t, index, type, field, least, most) wrong_reals(t, index, offsetof(type, field), least, most, 0, #field)
#define WRONG_REALS_FROM(t, index, type, field, least, most) \
    wrong_reals(t, index, offsetof(type, field), least, most, LEAST_IS_WRONG, #field)
#define WRONG_REALS_TO(t, index, type, field, least, most) wrong_reals(t, index, offsetof(type, field), least, most, MOST_IS_WRONG, #field)

/* a layout of these segments, and one argument by such a layout */
attn_layout *calls_layout(calls *t, int64_t count, const attn_segment *segments);
void wrong_layout(calls *t, int index, int64_t count, const attn_segment *segments, attn_status status, const char *word);
void wrong_layout_handles(calls *t, int index); /* handles of another kind, or freed */

/* free(NULL), free of a foreign handle and of one that is freed already do nothing */
void check_free(calls *t, int kind, void (*release)(void *));
/* NULL, sizes that cannot be, sizes smaller and larger than the library's */
void check_init(attn_status (*init)(void *options, uint64_t size), uint64_t size);
#define INIT(type, function) \
    static attn_status init_##type(void *options, uint64_t size) \
    { \
        return function(options, size); \
    }
#define RELEASE(type, function) \
    static void release_##type(void *object) \
    { \
        function(object); \
    }
#define THUNK(name, ...) \
    static attn_status name(const slot *a) \
    { \
        return __VA_ARGS__; \
    }
#endif
