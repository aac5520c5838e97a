#ifndef ATTN_DATA_H
#define ATTN_DATA_H
#include "layout.h"
ATTN_BEGIN
/* Vocabularies turn text into token ids and back; data sets turn token ids into batches. */

/* A vocabulary never changes after it was made: any number of threads may read it, each with its own context. */
typedef struct attn_vocabulary attn_vocabulary;
/* Batches for training and evaluation: windows over one text, or pairs of sequences. A data set is used by one thread at a time. */
typedef struct attn_dataset attn_dataset;

/* What one token stands for.
   BYTES: one byte; always 256 tokens, token i is byte i; any data has an encoding.
   CHARACTERS: one Unicode code point of valid UTF-8; ids in the order of code points.
   WORDS: a longest run of bytes other than space, tab, line feed, vertical tab, form feed and carriage return, valid UTF-8; ids by how
   often a word was seen, the most frequent first, then by bytes. */
enum { ATTN_SYMBOLS_BYTES = 0, ATTN_SYMBOLS_CHARACTERS = 1, ATTN_SYMBOLS_WORDS = 2 };

/* Collects the vocabulary of a text of `bytes` bytes (NULL with 0 is allowed for BYTES, whose text and threshold are not looked at).
   threshold 0 or 1: every symbol of the text becomes a token, and there is no unknown token. threshold 2 or more: symbols seen fewer
   times are left out, and token 0 is the unknown token, which stands for every symbol without a token. *out belongs to the caller.
   INVALID_ARGUMENT: unknown kind, no symbol in the text, text that is not valid UTF-8 (the message gives the offset).
   TOO_LARGE: more than 4,194,304 distinct symbols. OUT_OF_MEMORY, MEMORY_CAP. On failure *out is NULL. Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_create(attn_context *ctx, int32_t symbols, const void *text, int64_t bytes, int64_t threshold,
                                            attn_vocabulary **out);

/* Writes the text form (see attn_vocabulary_to_text) to a file, which is replaced as a whole or, on any failure, left as it was.
   IO: with the path and the system's reason. Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_save(attn_context *ctx, const attn_vocabulary *vocabulary, const char *path);
/* Reads what attn_vocabulary_save wrote; the file is not trusted. IO: it cannot be read. BAD_FILE: it is no vocabulary, or an entry is
   not one symbol or stands twice. UNSUPPORTED: a later version of the form. Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_load(attn_context *ctx, const char *path, attn_vocabulary **out);

/* The vocabulary as JSON text in ASCII, without a NUL at the end: it fits in the metadata of a model's file. *bytes is what it needs;
   FULL when capacity is less, and nothing is written then (capacity 0 with text NULL asks for the size). The same vocabulary always
   gives the same text. Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_to_text(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t capacity, char *text,
                                             int64_t *bytes);
/* The reverse; the text is not trusted. Errors as attn_vocabulary_load, but for IO. Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_from_text(attn_context *ctx, const char *text, int64_t bytes, attn_vocabulary **out);

/* Frees it; NULL is fine. Since: 0.0.1 */
ATTN_API void attn_vocabulary_free(attn_vocabulary *vocabulary);
/* Number of tokens, the unknown one included: ids are 0 to size - 1. -1 for NULL. Since: 0.0.1 */
ATTN_API int64_t attn_vocabulary_size(const attn_vocabulary *vocabulary);
/* ATTN_SYMBOLS_*; -1 for NULL. Since: 0.0.1 */
ATTN_API int32_t attn_vocabulary_symbols(const attn_vocabulary *vocabulary);
/* Id of the unknown token, or -1 when there is none. Since: 0.0.1 */
ATTN_API int32_t attn_vocabulary_unknown(const attn_vocabulary *vocabulary);

/* Token ids of a text. tokens: [capacity], the caller's; *count is how many there are. FULL when that is more than capacity: nothing is
   written then, and *count is what is needed (capacity 0 with tokens NULL asks for it). Text of only white space has 0 words.
   INVALID_ARGUMENT: text that is not valid UTF-8, or a symbol without a token when there is no unknown one (the message gives the symbol
   and its offset in bytes). Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_encode(attn_context *ctx, const attn_vocabulary *vocabulary, const void *text, int64_t bytes,
                                            int64_t capacity, int32_t *tokens, int64_t *count);
/* The text of `count` tokens, without a NUL at the end; *bytes, capacity and FULL as above. Words are joined by one space, the unknown
   token reads "<unk>". For bytes and characters, decoding an encoding gives the text back byte for byte, unknown symbols apart. Tokens may
   be decoded one at a time (a single byte need not be valid UTF-8). INVALID_ARGUMENT: an id outside 0 to size - 1, with its index.
   Since: 0.0.1 */
ATTN_API attn_status attn_vocabulary_decode(attn_context *ctx, const attn_vocabulary *vocabulary, const int32_t *tokens, int64_t count,
                                            int64_t capacity, char *text, int64_t *bytes);

/* RANDOM_WINDOWS: window number d (0, 1, ...) starts at a place drawn uniformly from all where context + 1 tokens fit, a pure function of
   (seed, d), with replacement; there is no end. SEQUENTIAL: windows start at 0, context, 2 context ...; the last may be shorter; each
   token but the first is predicted once, then comes END_OF_DATA. */
enum { ATTN_ORDER_RANDOM_WINDOWS = 0, ATTN_ORDER_SEQUENTIAL = 1, ATTN_ORDER_SHUFFLED = 2 /* of pairs alone */ };
typedef struct attn_dataset_options {
    uint64_t struct_size;
    int64_t context, batch;  /* tokens a window, windows a batch; 128, 16 */
    uint64_t seed;           /* 0 */
    int32_t order, reserved; /* ATTN_ORDER_*, by default random windows; 0 */
    double first, last;      /* the part [first, last) of the tokens, 0 to 1: indices first * count to last * count, rounded down */
} attn_dataset_options;
/* Writes the defaults. INVALID_ARGUMENT: size is too small. Since: 0.0.1 */
ATTN_API attn_status attn_dataset_options_init(attn_dataset_options *options, uint64_t size);
/* A data set for predicting the next token, from `count` ids of which the part is copied; options NULL: the defaults. All memory it will
   ever need is taken here. INVALID_ARGUMENT: a bad option, a negative id (with its index), or a part with too few tokens for one window
   (context + 1; 2 for the sequential order). TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_dataset_tokens(attn_context *ctx, const int32_t *tokens, int64_t count, const attn_dataset_options *options,
                                         attn_dataset **out);
/* SHUFFLED: every pass gives each pair once, in an order that is a pure function of seed and pass; there is no end. Each `bucket` pairs of the
   pass are sorted by their longer side, the whole is cut into batches, and those come in an order drawn anew. SEQUENTIAL: pairs and batches
   as they stand; then END_OF_DATA. */
typedef struct attn_pairs_options {
    uint64_t struct_size;
    int64_t batch; /* most pairs of a batch; 32 */
    int64_t
        batch_tokens; /* most rows of a batch on either side, what is added included; a longer pair is a batch of its own; 0 (default): any */
    int64_t bucket;   /* 0 (default): pairs are not sorted: packed rows have no padding to save */
    uint64_t seed;    /* 0 */
    int32_t order;    /* ATTN_ORDER_SHUFFLED (default) or _SEQUENTIAL */
    int32_t source_stop; /* a token that ends each source; -1 (default): none */
    int32_t start, stop; /* tokens before and after each target; to be given, may be the same */
} attn_pairs_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.2 */
ATTN_API attn_status attn_pairs_options_init(attn_pairs_options *options, uint64_t size);
/* A data set for an encoder and a decoder, of `count` pairs: pair p has the ids source[source_ends[p - 1]] up to source[source_ends[p]] (from 0
   for the first pair), and those of target likewise; ends never fall, and a side may be empty. All is copied, and all memory it will ever
   need is taken here. INVALID_ARGUMENT: NULL, no pair, ends that fall or are negative, a negative id (with its index), a bad option, start or
   stop not given. TOO_LARGE: 2^29 pairs, or 2^31 tokens of a side. OUT_OF_MEMORY, MEMORY_CAP. *out is the caller's, NULL on failure. Since: 0.0.2 */
ATTN_API attn_status attn_dataset_pairs(attn_context *ctx, int64_t count, const int32_t *source, const int64_t *source_ends,
                                        const int32_t *target, const int64_t *target_ends, const attn_pairs_options *options,
                                        attn_dataset **out);
/* Frees it; NULL is fine. Since: 0.0.1 */
ATTN_API void attn_dataset_free(attn_dataset *dataset);
/* The next batch. Windows: target and labels int32 [rows], label = the token after; target_layout has one segment for each window, from
   position 0; source and source_layout are NULL. Pairs: source with its stop in source_layout; target start, y_1 ... y_n in target_layout with
   labels y_1 ... y_n, stop; a segment for each pair. Sequence ids are counted on from batch to batch and from pass to pass, so that they never repeat in a
   training. batch must have been initialised by attn_batch_init; what it points to is borrowed and holds until the next call. Allocates
   nothing. END_OF_DATA: a sequential pass has ended; batch is left as it was. Since: 0.0.1 */
ATTN_API attn_status attn_dataset_next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch);
/* SEQUENTIAL: the next pass begins (nothing happens at the beginning of one). RANDOM_WINDOWS, SHUFFLED: starts over, sequence ids too.
   Since: 0.0.1 */
ATTN_API attn_status attn_dataset_rewind(attn_context *ctx, attn_dataset *dataset);
ATTN_END
#endif
