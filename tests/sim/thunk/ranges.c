/* A sorted array of address ranges. A run holds some hundreds of them at most. */
#include "thunk.h"

#include <stdlib.h>
#include <string.h>

/* The number of ranges that start at or below `address`. */
static size_t count_up_to(const struct range_table *table, uint64_t address)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->items[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool range_insert(struct range_table *table, const struct range *range)
{
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 64;
        struct range *items = realloc(table->items, capacity * sizeof *items);
        if (!items)
            return false;
        table->items = items;
        table->capacity = capacity;
    }
    size_t index = count_up_to(table, range->start);
    memmove(&table->items[index + 1], &table->items[index], (table->count - index) * sizeof *range);
    table->items[index] = *range;
    table->count++;
    return true;
}

struct range *range_at(struct range_table *table, uint64_t start)
{
    size_t below = count_up_to(table, start);
    if (below == 0 || table->items[below - 1].start != start)
        return NULL;
    return &table->items[below - 1];
}

struct range *range_around(struct range_table *table, uint64_t address)
{
    /* Registered host ranges may overlap, so the nearest start need not be the one that holds it. */
    for (size_t below = count_up_to(table, address); below > 0; below--) {
        struct range *range = &table->items[below - 1];
        if (address - range->start < range->asked_bytes)
            return range;
    }
    return NULL;
}

void range_remove(struct range_table *table, struct range *range)
{
    size_t index = (size_t)(range - table->items);
    memmove(range, range + 1, (table->count - index - 1) * sizeof *range);
    table->count--;
}
