// A library with the names of ggml and llama.cpp, loaded with local scope, that makes buffers as those do. Compiled twice: -DPLUGIN is
// the library. Its functions print what they were given and what they made, so a recorder that changes an argument (structures by
// value among them) or an answer shows.
//     ggml_buffers PLUGIN [all|many|threads|smaller|aborts|jumps|fiber|plain]
#ifdef PLUGIN
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "hip_min.h"

#define OURS __attribute__((noinline, visibility("default")))

enum sort { DEVICE, PROCESSOR, HOST, IN_TWO, OF_OTHERS, OF_ITSELF };
enum { ANY, WEIGHTS, COMPUTE };

struct buffer {
    enum sort sort;
    size_t size;
    void *memory[2];
    struct buffer *others[2];
};
// As large as no structure of llama.cpp's is; its last byte counts, too.
struct params { size_t bytes; unsigned char numbers[992]; };
struct batch { int tokens; void (*callback)(void); unsigned char numbers[48]; };
struct graph { size_t bytes; };
struct galloc { struct buffer *buffer; };
struct context { struct buffer *kept, *output; struct galloc galloc; };

static __thread jmp_buf back;
static const enum sort device = DEVICE, processor = PROCESSOR, host = HOST, in_two = IN_TWO, of_others = OF_OTHERS, of_itself = OF_ITSELF;

OURS void ggml_abort(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

OURS struct buffer *ggml_backend_buft_alloc_buffer(const enum sort *sort, size_t size);
OURS void ggml_backend_buffer_free(struct buffer *buffer);
OURS void ggml_backend_buffer_set_usage(struct buffer *buffer, int usage);

// A function that calls itself does so past every hook; those of ggml go through others.
static __attribute__((noinline)) int other_buffers(struct buffer *buffer) {
    for (int i = 0; i < 2; i++)
        if (!(buffer->others[i] = ggml_backend_buft_alloc_buffer(&device, buffer->size / 2))) return 1;
    return 0;
}

static __attribute__((noinline)) void use_others(struct buffer *buffer, int usage) {
    for (int i = 0; i < 2; i++)
        if (buffer->others[i]) ggml_backend_buffer_set_usage(buffer->others[i], usage);
}

OURS struct buffer *ggml_backend_buft_alloc_buffer(const enum sort *sort, size_t size) {
    struct buffer *buffer = calloc(1, sizeof *buffer);
    buffer->sort = *sort, buffer->size = size;
    int failed = 0;
    switch (size == 0 ? PROCESSOR : *sort) {
    case DEVICE: failed = hipMalloc(&buffer->memory[0], size); break;
    case PROCESSOR: buffer->memory[0] = malloc(size + 1); break;
    case HOST: failed = hipHostMalloc(&buffer->memory[0], size, 0); break;
    case IN_TWO:
        failed = hipMalloc(&buffer->memory[0], size / 2) || hipMalloc(&buffer->memory[1], size - size / 2);
        break;
    case OF_OTHERS: failed = other_buffers(buffer); break;
    case OF_ITSELF:
        for (int i = 0; i < 2; i++) failed |= !(buffer->others[i] = ggml_backend_buft_alloc_buffer(&device, size / 2));
        break;
    }
    if (!failed) return buffer;
    hipGetLastError();
    printf("no buffer of %zu\n", size);
    ggml_backend_buffer_free(buffer);
    return NULL;
}

OURS void ggml_backend_buffer_free(struct buffer *buffer) {
    if (!buffer) return;
    for (int i = 0; i < 2; i++) {
        ggml_backend_buffer_free(buffer->others[i]);
        if (!buffer->memory[i]) continue;
        if (buffer->size == 0 || buffer->sort == PROCESSOR) free(buffer->memory[i]);
        else if (buffer->sort == HOST) hipHostFree(buffer->memory[i]);
        else hipFree(buffer->memory[i]);
    }
    free(buffer);
}

OURS void ggml_backend_buffer_set_usage(struct buffer *buffer, int usage) {
    use_others(buffer, usage);
}

OURS struct buffer *ggml_backend_alloc_ctx_tensors_from_buft(size_t *bytes, const enum sort *sort) {
    return ggml_backend_buft_alloc_buffer(sort, *bytes);
}

OURS bool ggml_gallocr_reserve_n(struct galloc *galloc, struct graph *graph, const int *nodes, const int *leaves) {
    if (nodes != leaves) abort();
    if (galloc->buffer && galloc->buffer->size >= graph->bytes) return true;
    ggml_backend_buffer_free(galloc->buffer);
    galloc->buffer = ggml_backend_buft_alloc_buffer(&device, graph->bytes);
    if (galloc->buffer) ggml_backend_buffer_set_usage(galloc->buffer, COMPUTE);
    return galloc->buffer != NULL;
}

OURS bool ggml_backend_sched_reserve(struct galloc *galloc, struct graph *graph) {
    return ggml_gallocr_reserve_n(galloc, graph, NULL, NULL);
}

static unsigned sum(const unsigned char *numbers, size_t count) {
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) sum = sum * 31 + numbers[i];
    return sum;
}

OURS struct buffer *llama_model_load_from_file(const char *path, struct params params) {
    printf("load %s: %zu, %u\n", path, params.bytes, sum(params.numbers, sizeof params.numbers));
    // As llama.cpp does, to see what the device can do with each tensor; and what it uploads by.
    for (int i = 0; i < 50; i++) ggml_backend_buffer_free(ggml_backend_buft_alloc_buffer(&device, 0));
    struct buffer *weights = ggml_backend_alloc_ctx_tensors_from_buft(&params.bytes, &device);
    if (!weights) return NULL;
    ggml_backend_buffer_set_usage(weights, WEIGHTS);
    struct buffer *upload = ggml_backend_buft_alloc_buffer(&host, MiB);
    ggml_backend_buffer_free(upload);
    return weights;
}

OURS struct context *llama_init_from_model(struct buffer *model, struct params params) {
    printf("context: %zu, %zu, %u\n", model->size, params.bytes, sum(params.numbers, sizeof params.numbers));
    struct context *context = calloc(1, sizeof *context);
    context->output = ggml_backend_buft_alloc_buffer(&host, 4 * KiB);
    context->kept = ggml_backend_alloc_ctx_tensors_from_buft(&params.bytes, &device);
    struct graph graph = {params.bytes / 4};
    if (context->kept && ggml_backend_sched_reserve(&context->galloc, &graph)) return context;
    ggml_backend_buffer_free(context->kept);
    ggml_backend_buffer_free(context->output);
    free(context);
    return NULL;
}

OURS int llama_decode(struct context *context, struct batch batch) {
    if (sum(batch.numbers, sizeof batch.numbers)) return -3;
    if (batch.callback) batch.callback();
    struct graph graph = {(size_t)batch.tokens * MiB};
    if (context && !ggml_backend_sched_reserve(&context->galloc, &graph)) return -2;
    return batch.tokens;
}

static void end(struct buffer *model, struct context *context) {
    if (context) {
        ggml_backend_buffer_free(context->galloc.buffer);
        ggml_backend_buffer_free(context->kept);
        ggml_backend_buffer_free(context->output);
        free(context);
    }
    ggml_backend_buffer_free(model);
}

static struct params params(size_t bytes) {
    struct params params = {bytes, {0}};
    for (size_t i = 0; i < sizeof params.numbers; i++) params.numbers[i] = (unsigned char)(i * 7 + bytes / MiB);
    return params;
}

// 8 MiB of weights, 16 MiB of cache, 4 MiB to compute in, which grow to 6.
static int all(void) {
    struct buffer *model = llama_model_load_from_file("a model", params(8 * MiB));
    struct context *context = model ? llama_init_from_model(model, params(16 * MiB)) : NULL;
    if (!context) {
        puts(model ? "no context" : "no model");
        end(model, NULL);
        return 1;
    }
    for (int i = 0; i < 100; i++)
        if (llama_decode(context, (struct batch){.tokens = 2}) != 2) return 2;
    int grown = llama_decode(context, (struct batch){.tokens = 6});
    // The card at its fullest.
    ggml_backend_buffer_free(ggml_backend_buft_alloc_buffer(&device, MiB));
    printf("grown %d\n", grown);
    end(model, context);
    return grown != 6;
}

// Buffers that are no plain memory of a device, and one that the program says nothing of.
static int many(void) {
    struct buffer *all[] = {
        ggml_backend_buft_alloc_buffer(&processor, MiB),   ggml_backend_buft_alloc_buffer(&host, MiB),
        ggml_backend_buft_alloc_buffer(&in_two, 2 * MiB),  ggml_backend_buft_alloc_buffer(&of_others, 6 * MiB),
        ggml_backend_buft_alloc_buffer(&of_itself, 4 * MiB), ggml_backend_buft_alloc_buffer(&device, 5 * MiB),
    };
    for (int i = 0; i < 5; i++) ggml_backend_buffer_set_usage(all[i], WEIGHTS);
    void *other;
    MUST(hipMalloc(&other, 7 * MiB));
    for (int i = 0; i < 6; i++) ggml_backend_buffer_free(all[i]);
    ggml_backend_buffer_free(NULL);
    MUST(hipFree(other));
    return 0;
}

static void *of_thread(void *result) {
    *(int *)result = all();
    return NULL;
}

static int threads(void) {
    pthread_t threads[4];
    int results[4], bad = 0;
    for (int i = 0; i < 4; i++) bad |= pthread_create(&threads[i], NULL, of_thread, &results[i]);
    for (int i = 0; i < 4; i++) bad |= pthread_join(threads[i], NULL) | results[i];
    return bad;
}

static int smaller(void) {
    struct buffer *model = llama_model_load_from_file("a model", params(8 * MiB));
    struct context *context = NULL;
    for (size_t bytes = 64 * MiB; !context && bytes >= MiB; bytes /= 2) context = llama_init_from_model(model, params(bytes));
    end(model, context);
    return !context;
}

static int aborts(void) {
    struct buffer *model = llama_model_load_from_file("a model", params(8 * MiB));
    if (!llama_init_from_model(model, params(16 * MiB))) ggml_abort("ggml-cuda.cu", 7, "no %s", "memory");
    return 0;
}

static void jump(void) { longjmp(back, 1); }

// Left without a return; what comes then is inside nothing.
static int jumps(void) {
    void *memory;
    if (!setjmp(back)) llama_decode(NULL, (struct batch){.callback = jump});
    MUST(hipMalloc(&memory, 3 * MiB));
    if (hipMalloc(&memory, 512 * GiB) == hipSuccess) return 1;
    return hipGetLastError() != hipErrorOutOfMemory;
}

static ucontext_t here, there;
static int decoded;

static void at_the_top(void) {
    decoded = llama_decode(NULL, (struct batch){.tokens = 5});
}

// The arguments lie right below the end of the stack, and no page lies behind.
static int fiber(void) {
    void *memory;
    MUST(hipMalloc(&memory, MiB));
    size_t size = 64 * KiB;
    char *stack = mmap(NULL, size + 4 * KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack + size, 4 * KiB, PROT_NONE) || getcontext(&there)) return 1;
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = size, there.uc_link = &here;
    makecontext(&there, at_the_top, 0);
    if (swapcontext(&here, &there)) return 2;
    printf("decoded %d\n", decoded);
    return decoded != 5;
}

// No function of ggml's on the way.
static int plain(void) {
    void *memory;
    MUST(hipMalloc(&memory, 3 * MiB));
    MUST(hipFree(memory));
    return 0;
}

OURS int run(const char *what) {
    const struct { const char *name; int (*run)(void); } parts[] = {
        {"all", all}, {"many", many}, {"threads", threads}, {"smaller", smaller}, {"aborts", aborts},
        {"jumps", jumps}, {"fiber", fiber}, {"plain", plain},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(parts[i].name, what)) return parts[i].run();
    return 71;
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(const char *) = library ? (int (*)(const char *))dlsym(library, "run") : NULL;
    if (!run) return 72;
    return run(argv[2]);
}
#endif
