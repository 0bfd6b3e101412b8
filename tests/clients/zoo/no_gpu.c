// Never touches the GPU, though it is linked to the library. It starts threads, forks and opens files.
// There must be no trace file and no line from the recorder, in the parent or in the child.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

// Keeps the library among what the program needs.
void *never_called(void) { return (void *)hipMalloc; }

static void *nothing(void *argument) { return argument; }

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    pid_t pid = fork();
    if (pid == 0) return 0;
    waitpid(pid, NULL, 0);
    puts("nothing to see");
    return 0;
}
