// Two processes share memory: the first one exports an allocation (IPC) and a VMM handle (file descriptor), the second
// one, started with both, opens them, and imports memory of another interface too.
// The first one's trace holds 50 MiB. The second one's holds the imports, by name, and 7 MiB: what it imports belongs
// to others.
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_min.h"

typedef struct { unsigned char bytes[64]; } IpcHandle;
typedef struct { int type; uint64_t handle[2]; uint64_t size; unsigned flags, reserved[16]; } ExternalMemory;
typedef struct { uint64_t offset, size; unsigned flags, reserved[16]; } ExternalBuffer;

int cuIpcGetMemHandle(IpcHandle *handle, void *pointer);
int cuIpcOpenMemHandle_v2(void **pointer, IpcHandle handle, unsigned flags);
int cuIpcCloseMemHandle(void *pointer);
int cuMemExportToShareableHandle(void *out, void *handle, int type, unsigned long long flags);
int cuMemImportFromShareableHandle(void **handle, void *os_handle, int type);
int cuImportExternalMemory(void **memory, const ExternalMemory *description);
int cuExternalMemoryGetMappedBuffer(void **pointer, void *memory, const ExternalBuffer *description);
int cuDestroyExternalMemory(void *memory);

enum { FILE_DESCRIPTOR = 1 };

static const AllocationProperties properties = {
    .type = PINNED_MEMORY, .handle_types = FILE_DESCRIPTOR, .location = {ON_DEVICE, 0}};

static void begin(void) {
    void *context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

static void import_all(const char *hex, int file) {
    ExternalMemory description = {.type = FILE_DESCRIPTOR, .size = 16 * MiB};
    ExternalBuffer part = {.offset = 4 * MiB, .size = 8 * MiB};
    IpcHandle ipc;
    void *opened, *handle, *range, *external, *buffer, *own;
    for (size_t i = 0; i < sizeof ipc; i++) sscanf(hex + 2 * i, "%2hhx", &ipc.bytes[i]);
    MUST(cuMemAlloc_v2(&own, 7 * MiB));
    MUST(cuIpcOpenMemHandle_v2(&opened, ipc, 1));
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, FILE_DESCRIPTOR));
    MUST(cuMemAddressReserve(&range, 20 * MiB, 0, NULL, 0));
    MUST(cuMemMap(range, 20 * MiB, 0, handle, 0));
    MUST(cuImportExternalMemory(&external, &description));
    MUST(cuExternalMemoryGetMappedBuffer(&buffer, external, &part));
    MUST(cuMemUnmap(range, 20 * MiB));
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(range, 20 * MiB));
    MUST(cuDestroyExternalMemory(external));
    MUST(cuIpcCloseMemHandle(opened));
    MUST(cuMemFree_v2(own));
}

static int export_all(const char *program) {
    IpcHandle ipc;
    void *block, *handle;
    int file, status;
    MUST(cuMemAlloc_v2(&block, 30 * MiB));
    MUST(cuIpcGetMemHandle(&ipc, block));
    MUST(cuMemCreate(&handle, 20 * MiB, &properties, 0));
    MUST(cuMemExportToShareableHandle(&file, handle, FILE_DESCRIPTOR, 0));
    fcntl(file, F_SETFD, 0);

    char hex[2 * sizeof ipc + 1], number[16];
    for (size_t i = 0; i < sizeof ipc; i++) snprintf(hex + 2 * i, 3, "%02x", ipc.bytes[i]);
    snprintf(number, sizeof number, "%d", file);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, hex, number, (char *)NULL);
        _exit(75);
    }
    waitpid(child, &status, 0);
    MUST(cuMemRelease(handle));
    MUST(cuMemFree_v2(block));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 76;
}

int main(int count, char **arguments) {
    begin();
    if (count == 3) import_all(arguments[1], atoi(arguments[2]));
    return count == 3 ? 0 : export_all(arguments[0]);
}
