// What the tables of exported functions give to the look-up.
#ifndef DRIVER_API_H
#define DRIVER_API_H

#include "driver.h"

struct entry {
    const char *base;  // the name by which it is asked for; null behind the last one
    int version;       // the CUDA version that brought this one
    void *function;
    int twin_version;  // the same for its per-thread default stream twin
    void *twin;        // null: there is none
};

extern const struct entry drv_entries[];

#endif
