// Resources of a graphics interface: any handle stands for one page that is not the card's.
#include "sim.h"

int sim_GraphicsResourceGetMappedPointer(void **pointer, size_t *size, void *resource) {
    static _Alignas(4096) char page[4096];
    if (!pointer || !size || !resource) return SIM_INVALID_VALUE;
    *pointer = page;
    *size = sizeof page;
    return SIM_SUCCESS;
}
