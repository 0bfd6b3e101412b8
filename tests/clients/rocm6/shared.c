// A block of the card's memory for another process: one makes a handle, a second one (this program again) opens it, reads what lies
// there, and takes a block of its own. Says what each call answers, so a recorder that changes an answer shows.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../zoo/hip_min.h"

typedef struct { unsigned char bytes[64]; } hipIpcMemHandle_t;
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *pointer);
hipError_t hipIpcOpenMemHandle(void **pointer, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void *pointer);

enum { READ_BYTES = 1 << 20 };
static unsigned char bytes[READ_BYTES];

static unsigned sum(void) {
    unsigned sum = 0;
    for (size_t i = 0; i < READ_BYTES; i++) sum = sum * 31 + bytes[i];
    return sum;
}

static int other(void) {
    hipIpcMemHandle_t handle;
    void *there = NULL, *own = NULL;
    if (read(0, &handle, sizeof handle) != sizeof handle) return 1;
    int answer = hipIpcOpenMemHandle(&there, handle, 1);
    printf("opened: %d\n", answer);
    if (answer != hipSuccess) return 2;
    MUST(hipMemcpy(bytes, there, READ_BYTES, hipMemcpyDeviceToHost));
    printf("read: %u\n", sum());
    MUST(hipMalloc(&own, 8 * MiB));
    MUST(hipIpcCloseMemHandle(there));
    MUST(hipFree(own));
    return 0;
}

int main(int count, char **arguments) {
    hipIpcMemHandle_t handle;
    void *block;
    int way[2], status = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 1) return other();
    MUST(hipMalloc(&block, 64 * MiB));
    for (size_t i = 0; i < READ_BYTES; i++) bytes[i] = (unsigned char)(i * 7 + i / 999);
    MUST(hipMemcpy(block, bytes, READ_BYTES, hipMemcpyHostToDevice));
    printf("written: %u\n", sum());
    memset(&handle, 0, sizeof handle);
    int answer = hipIpcGetMemHandle(&handle, block);
    printf("handle: %d\n", answer);
    if (answer == hipSuccess) {
        if (pipe(way) != 0) return 3;
        pid_t child = fork();
        if (child == 0) {
            dup2(way[0], 0);
            close(way[1]);
            execl("/proc/self/exe", arguments[0], "other", (char *)NULL);
            _exit(4);
        }
        if (write(way[1], &handle, sizeof handle) != sizeof handle) return 5;
        waitpid(child, &status, 0);
    }
    MUST(hipFree(block));
    return status != 0;
}
