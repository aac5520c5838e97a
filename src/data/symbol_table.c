#include <string.h>
#include "vocabulary.h"

enum { FIRST_CAPACITY = 128 };

void attn__symbol_table_start(attn__symbol_table *table, attn__memory *memory, const void *text)
{
    memset(table, 0, sizeof *table);
    table->memory = memory;
    table->text = text;
}

void attn__symbol_table_end(attn__symbol_table *table)
{
    attn__deallocate(table->memory, table->symbols, table->capacity * (int64_t)sizeof *table->symbols);
    attn__deallocate(table->memory, table->slots, table->slots_count * (int64_t)sizeof *table->slots);
    table->symbols = NULL;
    table->slots = NULL;
}

/* FNV-1a; the high bits, which it mixes best, are folded into the low ones */
static int64_t first_slot(const attn__symbol_table *table, const unsigned char *symbol, int64_t length)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int64_t i = 0; i < length; i++) hash = (hash ^ symbol[i]) * UINT64_C(1099511628211);
    return (int64_t)((hash ^ hash >> 32) & (uint64_t)(table->slots_count - 1));
}

/* The slot that holds the symbol, or the free one where it belongs. */
static int64_t find_slot(const attn__symbol_table *table, const unsigned char *symbol, int64_t length)
{
    int64_t slot = first_slot(table, symbol, length);
    for (; table->slots[slot] >= 0; slot = (slot + 1) & (table->slots_count - 1)) {
        const attn__symbol *have = &table->symbols[table->slots[slot]];
        if (have->length == length && memcmp(table->text + have->begin, symbol, (size_t)length) == 0) break;
    }
    return slot;
}

int32_t attn__symbol_table_find(const attn__symbol_table *table, const unsigned char *symbol, int64_t length)
{
    return table->slots_count == 0 ? -1 : table->slots[find_slot(table, symbol, length)];
}

/* Twice the symbols, and four slots for each two of them. The table is whole on failure. */
static attn_status grow(attn__symbol_table *table)
{
    int64_t capacity = table->capacity > 0 ? 2 * table->capacity : FIRST_CAPACITY, slots_count = 2 * capacity;
    attn__symbol *symbols;
    int32_t *slots;
    attn_status status = attn__allocate(table->memory, capacity * (int64_t)sizeof *symbols, (void **)&symbols);
    if (status != ATTN_OK) return status;
    status = attn__allocate(table->memory, slots_count * (int64_t)sizeof *slots, (void **)&slots);
    if (status != ATTN_OK) {
        attn__deallocate(table->memory, symbols, capacity * (int64_t)sizeof *symbols);
        return status;
    }
    if (table->count > 0) memcpy(symbols, table->symbols, (size_t)table->count * sizeof *symbols);
    attn__symbol_table_end(table);
    table->symbols = symbols;
    table->slots = slots;
    table->capacity = capacity;
    table->slots_count = slots_count;
    for (int64_t i = 0; i < slots_count; i++) slots[i] = -1;
    for (int64_t i = 0; i < table->count; i++) slots[find_slot(table, table->text + symbols[i].begin, symbols[i].length)] = (int32_t)i;
    return ATTN_OK;
}

attn_status attn__symbol_table_add(attn__symbol_table *table, int64_t begin, int64_t length)
{
    int32_t found = attn__symbol_table_find(table, table->text + begin, length);
    if (found >= 0) {
        table->symbols[found].count++;
        return ATTN_OK;
    }
    if (table->count >= ATTN__VOCABULARY_MOST) return ATTN_ERROR_TOO_LARGE;
    if (table->count == table->capacity) {
        attn_status status = grow(table);
        if (status != ATTN_OK) return status;
    }
    table->symbols[table->count] = (attn__symbol){begin, length, 1};
    table->slots[find_slot(table, table->text + begin, length)] = (int32_t)table->count;
    table->count++;
    return ATTN_OK;
}
