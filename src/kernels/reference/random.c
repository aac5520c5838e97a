#include <math.h>
#include "../../tensor/parameters.h"
#include "real.h"

#define TWO_PI 6.28318530717958647692

/* y (+)= dropout(x): kept and scaled by 1 / (1 - rate), or 0 */
attn_status REFERENCE(dropout)(attn_context *ctx, const view *x, const attn__dropout *drop, int add, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++) put(element_of(y, r, c), drop_row(drop, r, c, (double)*element_of(x, r, c)), add);
    }
    return ATTN_OK;
}

/* Element e of the view in row-major order. Elements 2n and 2n + 1 share the Philox block with counter n: words 0, 1 give u1 and
   words 2, 3 give u2, each with 53 bits. Uniform: element 2n is (2 u1 - 1) a, element 2n + 1 is (2 u2 - 1) a. Normal (Box and
   Muller): radius a sqrt(-2 log(1 - u1)) times the cosine, and the sine, of 2 pi u2. */
static double start_at(uint64_t element, int32_t start, double amount, uint64_t key)
{
    uint64_t block = element / 2;
    uint32_t word[4];
    if (start == ATTN__START_CONSTANT) return amount;
    attn__philox(key, (uint32_t)block, (uint32_t)(block >> 32), 0, 0, word);
    double u1 = attn__uniform53(word[0], word[1]), u2 = attn__uniform53(word[2], word[3]);
    if (start == ATTN__START_UNIFORM) return (2 * (element % 2 == 0 ? u1 : u2) - 1) * amount;
    double radius = amount * sqrt(-2 * log1p(-u1));
    return radius * (element % 2 == 0 ? cos(TWO_PI * u2) : sin(TWO_PI * u2));
}

attn_status REFERENCE(fill)(attn_context *ctx, view *y, int32_t start, double amount, uint64_t key)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++) {
            *element_of(y, r, c) = (real)start_at((uint64_t)(r * columns_of(y) + c), start, amount, key);
        }
    }
    return ATTN_OK;
}
