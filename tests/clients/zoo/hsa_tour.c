// Every HSA function that is recorded, well and badly: pools, virtual memory, shared virtual memory, memory of another
// process, locked host memory, queues, code; and what a program does after it was refused. Wants two GPUs.
// At the end 9 MiB live on GPU 1. The output is the same in every run: no addresses.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hsa_min.h"

enum { CPU, GPU0, GPU1, AGENTS };

static agent agents[AGENTS];
static pool pools[AGENTS];
static region regions[AGENTS];
static int found;

static int take_first(uint64_t one, void *place) {
    *(uint64_t *)place = one;
    return 1;  // HSA_STATUS_INFO_BREAK
}

static int take_agent(agent a, void *data) {
    (void)data;
    if (found == AGENTS) exit(72);
    agents[found] = a;
    hsa_amd_agent_iterate_memory_pools(a, take_first, &pools[found]);
    hsa_agent_iterate_regions(a, take_first, &regions[found]);
    found++;
    return 0;
}

static void begin(void) {
    MUST(hsa_init());
    found = 0;
    MUST(hsa_iterate_agents(take_agent, NULL));
    if (found != AGENTS) exit(73);
}

static void say_free(const char *when) {
    uint64_t bytes[AGENTS];
    for (int i = GPU0; i < AGENTS; i++) MUST(hsa_agent_get_info(agents[i], INFO_MEMORY_AVAILABLE, &bytes[i]));
    printf("%s: %zu and %zu MiB free\n", when, (size_t)bytes[GPU0] / MiB, (size_t)bytes[GPU1] / MiB);
}

static void from_pools(void) {
    void *first, *second, *host, *again;
    MUST(hsa_amd_memory_pool_allocate(pools[GPU0], 5 * MiB + 1, 0, &first));
    MUST(hsa_amd_memory_pool_allocate(pools[GPU1], 8 * MiB, 0, &second));
    MUST(hsa_amd_memory_pool_allocate(pools[CPU], 3 * MiB, 0, &host));
    MUST(hsa_amd_agents_allow_access(1, &agents[GPU0], NULL, host));
    say_free("pools");
    REFUSED("nothing", hsa_amd_memory_pool_allocate(pools[GPU0], 0, 0, &again));
    REFUSED("no pool", hsa_amd_memory_pool_allocate(12345, MiB, 0, &again));
    REFUSED("no block", hsa_amd_memory_pool_free((char *)first + 64));
    MUST(hsa_amd_memory_pool_free(first));
    MUST(hsa_amd_memory_pool_free(second));
    MUST(hsa_amd_memory_pool_free(host));
    MUST(hsa_amd_memory_pool_free(NULL));
    MUST(hsa_memory_allocate(regions[GPU1], 6 * MiB, &first));
    MUST(hsa_memory_allocate(regions[CPU], MiB, &second));
    MUST(hsa_memory_free(first));
    MUST(hsa_memory_free(second));
    REFUSED("twice", hsa_memory_free(first));
}

static void locked(void) {
    void *host = aligned_alloc(4096, 4 * MiB), *seen;
    MUST(hsa_amd_memory_lock(host, 4 * MiB, &agents[GPU0], 1, &seen));
    MUST(hsa_amd_memory_unlock(host));
    MUST(hsa_amd_memory_lock_to_pool(host, 2 * MiB, &agents[GPU0], 1, pools[CPU], 0, &seen));
    MUST(hsa_amd_memory_unlock(host));
    REFUSED("not locked", hsa_amd_memory_unlock(host));
    REFUSED("to no pool", hsa_amd_memory_lock_to_pool(host, MiB, NULL, 0, pools[GPU0], 0, &seen));
    MUST(hsa_memory_register(host, MiB));
    MUST(hsa_memory_deregister(host, MiB));
    free(host);
}

// The memory lives until it is released and unmapped.
static void virtual_memory(void) {
    const size_t size = 32 * MiB;
    access_description access = {READ_WRITE, agents[GPU1]};
    char *range, *aligned;
    handle memory, other, again;
    MUST(hsa_amd_vmem_address_reserve((void **)&range, 4 * size, 0, 0));
    MUST(hsa_amd_vmem_address_reserve_align((void **)&aligned, size, 0, 2 * MiB, 0));
    MUST(hsa_amd_vmem_handle_create(pools[GPU1], size, 1, 0, &memory));
    MUST(hsa_amd_vmem_handle_create(pools[GPU0], 2 * MiB, 0, 0, &other));
    REFUSED("odd size", hsa_amd_vmem_handle_create(pools[GPU1], 5, 1, 0, &again));
    REFUSED("host memory", hsa_amd_vmem_handle_create(pools[CPU], 2 * MiB, 1, 0, &again));
    MUST(hsa_amd_vmem_map(range, size, 0, memory, 0));
    MUST(hsa_amd_vmem_map(range + size, size, 0, memory, 0));
    MUST(hsa_amd_vmem_map(aligned, 2 * MiB, 0, other, 0));
    MUST(hsa_amd_vmem_set_access(range, size, &access, 1));
    range[size - 1] = 1;
    REFUSED("mapped over", hsa_amd_vmem_map(range, size, 0, memory, 0));
    REFUSED("outside", hsa_amd_vmem_map(range + 4 * size, size, 0, memory, 0));
    REFUSED("in use", hsa_amd_vmem_address_free(range, 4 * size));
    MUST(hsa_amd_vmem_handle_release(memory));
    MUST(hsa_amd_vmem_handle_release(other));
    MUST(hsa_amd_vmem_unmap(aligned, 2 * MiB));
    MUST(hsa_amd_vmem_unmap(range, size));
    say_free("one mapping left");
    REFUSED("nothing there", hsa_amd_vmem_unmap(range, size));
    REFUSED("of nothing", hsa_amd_vmem_retain_alloc_handle(&again, range));
    MUST(hsa_amd_vmem_retain_alloc_handle(&again, range + size + size / 2));
    MUST(hsa_amd_vmem_unmap(range + size, size));
    say_free("retained");
    MUST(hsa_amd_vmem_handle_release(again));
    say_free("released");
    REFUSED("no handle", hsa_amd_vmem_handle_release(again));
    MUST(hsa_amd_vmem_address_free(range, 4 * size));
    MUST(hsa_amd_vmem_address_free(aligned, size));
    REFUSED("too large", hsa_amd_vmem_address_reserve((void **)&range, (size_t)1 << 60, 0, 0));
}

static void shared_virtual_memory(void) {
    const size_t size = 16 * MiB;
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    attribute list[] = {{0, 1}, {PREFERRED_LOCATION, agents[GPU1]}}, asked = {PREFETCH_LOCATION, 0};
    sig done;
    MUST(hsa_signal_create(1, 0, NULL, &done));
    MUST(hsa_amd_svm_attributes_set(pages, size, list, 2));
    MUST(hsa_amd_svm_attributes_set(pages, size, list, 1));
    MUST(hsa_amd_svm_prefetch_async(pages, size, agents[GPU0], 0, NULL, done));
    MUST(hsa_amd_svm_attributes_get(pages, size, &asked, 1));
    printf("prefetched to GPU 0: %d, signal %lld\n", asked.value == agents[GPU0],
           (long long)hsa_signal_load_scacquire(done));
    REFUSED("to nobody", hsa_amd_svm_prefetch_async(pages, size, 77, 0, NULL, done));
    REFUSED("no attributes", hsa_amd_svm_attributes_set(pages, size, NULL, 0));
    MUST(hsa_signal_destroy(done));
    munmap(pages, size);
}

static void queues(void) {
    void *all[64];
    int count = 0, status;
    while ((status = hsa_queue_create(agents[GPU0], 1024, 0, NULL, NULL, 0, 0, &all[count])) == 0) count++;
    printf("%d queues, then %#x\n", count, (unsigned)status);
    REFUSED("odd queue", hsa_queue_create(agents[GPU0], 1000, 0, NULL, NULL, 0, 0, &all[count]));
    while (count > 0) MUST(hsa_queue_destroy(all[--count]));
    MUST(hsa_queue_create(agents[GPU1], 64, 0, NULL, NULL, 0, 0, &all[0]));
    MUST(hsa_queue_destroy(all[0]));
    REFUSED("no queue", hsa_queue_destroy(all[0]));
}

static void code(void) {
    static const char bytes[4096];
    handle executable, reader, of_file, loaded;
    int file = memfd_create("code", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 8192) != 0) exit(74);
    MUST(hsa_code_object_reader_create_from_memory(bytes, sizeof bytes, &reader));
    MUST(hsa_code_object_reader_create_from_file(file, &of_file));
    MUST(hsa_executable_create_alt(0, 0, NULL, &executable));
    MUST(hsa_executable_load_agent_code_object(executable, agents[GPU0], reader, NULL, &loaded));
    MUST(hsa_executable_load_program_code_object(executable, reader, NULL, &loaded));
    MUST(hsa_executable_load_code_object(executable, agents[GPU0], of_file, NULL));
    MUST(hsa_executable_freeze(executable, NULL));
    REFUSED("frozen", hsa_executable_load_agent_code_object(executable, agents[GPU0], reader, NULL, &loaded));
    say_free("code");
    MUST(hsa_executable_destroy(executable));
    MUST(hsa_code_object_reader_destroy(reader));
    MUST(hsa_code_object_reader_destroy(of_file));
    close(file);
}

// What the other process gives: a handle of its block, and its block and its physical memory as descriptors.
struct gift { ipc_memory block; };

static void send_gift(int socket, const struct gift *gift, const int files[2]) {
    char room[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec part = {(void *)gift, sizeof *gift};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), files, 2 * sizeof(int));
    if (sendmsg(socket, &message, 0) < 0) exit(75);
}

static void receive_gift(int socket, struct gift *gift, int files[2]) {
    char room[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec part = {gift, sizeof *gift};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(socket, &message, 0) != sizeof *gift || !CMSG_FIRSTHDR(&message)) exit(76);
    memcpy(files, CMSG_DATA(CMSG_FIRSTHDR(&message)), 2 * sizeof(int));
}

static int give(int socket) {
    struct gift gift;
    void *block;
    handle memory;
    int files[2];
    uint64_t offset;
    char end;
    begin();
    MUST(hsa_amd_memory_pool_allocate(pools[GPU1], 12 * MiB, 0, &block));
    MUST(hsa_amd_vmem_handle_create(pools[GPU1], 14 * MiB, 1, 0, &memory));
    MUST(hsa_amd_ipc_memory_create(block, 12 * MiB, &gift.block));
    MUST(hsa_amd_portable_export_dmabuf(block, 12 * MiB, &files[0], &offset));
    int again;
    MUST(hsa_amd_portable_export_dmabuf_v2(block, 12 * MiB, &again, &offset, 0));
    close(again);
    MUST(hsa_amd_vmem_export_shareable_handle(&files[1], memory, 0));
    send_gift(socket, &gift, files);
    if (read(socket, &end, 1) != 1) exit(77);
    MUST(hsa_amd_vmem_handle_release(memory));
    MUST(hsa_amd_memory_pool_free(block));
    MUST(hsa_shut_down());
    return 0;
}

// Memory of another process is none of this one's: nothing is free or taken because of it.
static void take(int socket) {
    struct gift gift;
    int files[2];
    void *block, *buffer, *larger, *range;
    size_t size = 0, size_again = 0;
    handle memory;
    receive_gift(socket, &gift, files);
    MUST(hsa_amd_ipc_memory_attach(&gift.block, 12 * MiB, 1, &agents[GPU1], &block));
    MUST(hsa_amd_interop_map_buffer(1, &agents[GPU1], files[0], 0, &size, &buffer, NULL, NULL));
    MUST(hsa_amd_interop_map_buffer_with_size(1, &agents[GPU1], files[0], 0, MiB, &size_again, &larger, NULL, NULL));
    MUST(hsa_amd_vmem_import_shareable_handle(files[1], &memory));
    MUST(hsa_amd_vmem_address_reserve(&range, 14 * MiB, 0, 0));
    MUST(hsa_amd_vmem_map(range, 14 * MiB, 0, memory, 0));
    printf("buffers of %zu and %zu MiB\n", size / MiB, size_again / MiB);
    say_free("imported");
    REFUSED("no memory's handle", hsa_amd_ipc_memory_attach(&(ipc_memory){{0}}, MiB, 1, &agents[GPU1], &range));
    REFUSED("no buffer", hsa_amd_interop_map_buffer(1, &agents[GPU1], -1, 0, &size, &buffer, NULL, NULL));
    REFUSED("no export", hsa_amd_vmem_import_shareable_handle(-1, &memory));
    MUST(hsa_amd_vmem_unmap(range, 14 * MiB));
    MUST(hsa_amd_vmem_address_free(range, 14 * MiB));
    MUST(hsa_amd_vmem_handle_release(memory));
    MUST(hsa_amd_interop_unmap_buffer(larger));
    MUST(hsa_amd_interop_unmap_buffer(buffer));
    MUST(hsa_amd_ipc_memory_detach(block));
    REFUSED("not attached", hsa_amd_ipc_memory_detach(block));
    if (write(socket, "e", 1) != 1) exit(78);
}

static void refuse(const char *what) {
    void *block;
    if (hsa_amd_memory_pool_allocate(pools[GPU0], (size_t)1 << 40, 0, &block) != OUT_OF_RESOURCES) exit(79);
    printf("refused, then %s\n", what);
}

// Each of these is recorded only after a refusal. They all work: the program goes on.
static void work_after_refusals(void) {
    static const char operation[256];
    char *to, *from;
    const char *text;
    dim3 zero = {0, 0, 0}, range = {64, 2, 1};
    sig done;
    MUST(hsa_signal_create(9, 0, NULL, &done));
    MUST(hsa_amd_memory_pool_allocate(pools[GPU0], 4 * MiB, 0, (void **)&to));
    MUST(hsa_amd_memory_pool_allocate(pools[GPU0], 4 * MiB, 0, (void **)&from));
    refuse("asked why");
    MUST(hsa_status_string(OUT_OF_RESOURCES, &text));
    refuse("filled");
    MUST(hsa_amd_memory_fill(from, 0x07070707, MiB));
    refuse("copied");
    MUST(hsa_memory_copy(to, from, MiB));
    refuse("copied later");
    MUST(hsa_amd_memory_async_copy(to, agents[GPU0], from, agents[GPU0], MiB, 0, NULL, done));
    refuse("copied by an engine");
    MUST(hsa_amd_memory_async_copy_on_engine(to, agents[GPU0], from, agents[GPU0], MiB, 0, NULL, done, 1, false));
    refuse("copied a rectangle");
    pitched source = {from, 128, 0}, target = {to, 128, 0};
    MUST(hsa_amd_memory_async_copy_rect(&target, &zero, &source, &zero, &range, agents[GPU0], 3, 0, NULL, done));
    refuse("copied a batch");
    MUST(hsa_amd_memory_async_batch_copy(operation, 1, 0, NULL));
    printf("%s; %d; signal %lld\n", text, to[MiB - 1], (long long)hsa_signal_load_scacquire(done));
    MUST(hsa_amd_memory_pool_free(from));
    MUST(hsa_amd_memory_pool_free(to));
    MUST(hsa_signal_destroy(done));
}

// The other ways to run out: physical memory, and code on a full card.
static void refused_otherwise(void) {
    static const char bytes[4096];
    handle memory, executable, reader, loaded;
    void *all;
    uint64_t free_bytes;
    REFUSED("no physical memory", hsa_amd_vmem_handle_create(pools[GPU1], (size_t)1 << 40, 1, 0, &memory));
    MUST(hsa_agent_get_info(agents[GPU0], INFO_MEMORY_AVAILABLE, &free_bytes));
    MUST(hsa_amd_memory_pool_allocate(pools[GPU0], free_bytes, 0, &all));
    MUST(hsa_code_object_reader_create_from_memory(bytes, sizeof bytes, &reader));
    MUST(hsa_executable_create_alt(0, 0, NULL, &executable));
    REFUSED("no room for code", hsa_executable_load_agent_code_object(executable, agents[GPU0], reader, NULL, &loaded));
    MUST(hsa_amd_memory_pool_free(all));
    MUST(hsa_executable_load_agent_code_object(executable, agents[GPU0], reader, NULL, &loaded));
    MUST(hsa_executable_destroy(executable));
    MUST(hsa_code_object_reader_destroy(reader));
}

int main(void) {
    int ends[2], status;
    void *kept;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 80;
    fflush(stdout);
    pid_t giver = fork();
    if (giver == 0) return give(ends[1]);
    REFUSED("before the start", hsa_amd_memory_pool_allocate(1, MiB, 0, &kept));
    begin();
    from_pools();
    locked();
    virtual_memory();
    shared_virtual_memory();
    queues();
    code();
    take(ends[0]);
    work_after_refusals();
    refused_otherwise();
    MUST(hsa_amd_memory_pool_allocate(pools[GPU1], 9 * MiB, 0, &kept));
    say_free("end");
    MUST(hsa_shut_down());
    if (waitpid(giver, &status, 0) != giver || status != 0) return 81;
    return 0;
}
