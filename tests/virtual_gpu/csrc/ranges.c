/* Sorted tables of address ranges that do not overlap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "virtual_gpu.h"

/* Index of the first range that starts above an address. */
static size_t first_above(const vgpu_ranges *table, uintptr_t address) {
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

void vgpu_ranges_insert(vgpu_ranges *table, vgpu_range range) {
    if (table->count == table->room) {
        table->room = table->room ? 2 * table->room : 64;
        table->items = realloc(table->items, table->room * sizeof *table->items);
        if (!table->items) {
            fprintf(stderr, "virtual GPU: no host memory left for its own tables\n");
            abort();
        }
    }
    size_t at = first_above(table, range.start);
    memmove(&table->items[at + 1], &table->items[at], (table->count - at) * sizeof range);
    table->items[at] = range;
    table->count++;
}

void vgpu_ranges_remove(vgpu_ranges *table, const vgpu_range *item) {
    size_t at = (size_t)(item - table->items);
    table->count--;
    memmove(&table->items[at], &table->items[at + 1], (table->count - at) * sizeof *item);
}

vgpu_range *vgpu_ranges_containing(const vgpu_ranges *table, uintptr_t address) {
    size_t above = first_above(table, address);
    if (!above) return NULL;
    vgpu_range *range = &table->items[above - 1];
    return address - range->start < range->size ? range : NULL;
}

vgpu_range *vgpu_ranges_starting(const vgpu_ranges *table, uintptr_t address) {
    size_t above = first_above(table, address);
    return above && table->items[above - 1].start == address ? &table->items[above - 1] : NULL;
}

bool vgpu_ranges_overlap(const vgpu_ranges *table, uintptr_t start, size_t size) {
    size_t above = first_above(table, start);
    if (above < table->count && table->items[above].start - start < size) return true;
    return vgpu_ranges_containing(table, start) != NULL;
}

bool vgpu_ranges_cover(const vgpu_ranges *table, uintptr_t start, size_t size) {
    while (size) {
        const vgpu_range *range = vgpu_ranges_containing(table, start);
        if (!range) return false;
        size_t here = range->start + range->size - start;
        if (here >= size) return true;
        start += here;
        size -= here;
    }
    return true;
}
