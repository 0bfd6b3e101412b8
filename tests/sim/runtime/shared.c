// What the processes that share the devices hold of them: a row for each process in a file that all have mapped. A row is
// written by its process only; it goes with the process.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config.h"
#include "device.h"
#include "shared.h"

static struct shared_row *rows, *own;

void sim_shared_join(void) {
    const char *path = sim_config()->card_file;
    int file = path[0] ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    size_t size = SHARED_PROCESSES * sizeof *rows;
    void *pages = ftruncate(file, (off_t)size) == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (pages == MAP_FAILED) return;
    rows = pages;
    for (own = rows; own < rows + SHARED_PROCESSES; own++) {
        pid_t nobody = 0;
        if (atomic_compare_exchange_strong(&own->process, &nobody, getpid())) return;
    }
    own = NULL;
}

// At the process's end. One that is killed keeps its row: what it held would have to be given back by somebody else.
__attribute__((destructor)) static void leave(void) {
    if (!own || atomic_load(&own->process) != getpid()) return;
    for (int device = 0; device < SIM_MAX_DEVICES; device++) atomic_store(&own->held[device], 0);
    atomic_store(&own->process, 0);
    own = NULL;
}

void sim_shared_update(int device, size_t held) {
    if (own) atomic_store(&own->held[device], held);
}

size_t sim_shared_by_others(int device) {
    size_t sum = 0;
    for (struct shared_row *row = rows; row && row < rows + SHARED_PROCESSES; row++)
        if (row != own) sum += atomic_load(&row->held[device]);
    return sum;
}
