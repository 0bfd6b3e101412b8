// The file that the processes on the same devices share (SIM_CARD_FILE): rows, one for each process.
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "config.h"

enum { SHARED_PROCESSES = 32 };

struct shared_row {
    _Atomic pid_t process;  // 0: free
    _Atomic size_t held[SIM_MAX_DEVICES];
};

#endif
