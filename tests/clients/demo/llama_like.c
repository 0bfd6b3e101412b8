// A llama.cpp-like load on HIP: the weights of a 7B model in Q4, tensor by tensor through pinned staging buffers, a
// compute buffer, and a KV cache that grows while tokens are decoded, until the card refuses. No kernel computes.
//
//     llama_like [--layers N] [--ctx N] [--tokens N] [--loop N]
//
// --ctx: tokens that the KV cache may grow to; --tokens: tokens to decode; --loop: load and unload so many times.
// With the defaults 16 GiB are not enough: it prints the error like ggml and exits 1. Every run makes the same calls.
//
// On the simulated card SIM_COPY_BYTES=64K keeps the copies from turning 4 GiB of weights into real memory.
// Build: tests/sim/build OUT && cc -O2 -o llama_like llama_like.c -LOUT -lamdhip64 -Wl,-rpath,OUT
#include <string.h>

#include "../zoo/hip_min.h"

enum { EMBEDDING = 4096, VOCABULARY = 32000, FIRST_CONTEXT = 512, STAGING_BUFFERS = 4, TENSORS_PER_LAYER = 9 };
enum { KERNELS_PER_LAYER = 9 };
#define STAGING_BYTES (4 * MiB)
#define KV_BYTES_PER_TOKEN ((size_t)EMBEDDING * 2)  // f16, of K or of V in one layer

struct options { size_t layers, context, tokens, loops; };

struct model {
    size_t layers;
    void **tensors;  // TENSORS_PER_LAYER of each layer, then the output matrix and its norm
    size_t tensor_count;
    void *staging[STAGING_BUFFERS];
    void **k, **v;
    size_t context;  // tokens that the cache has room for
    void *compute;
    hipStream_t stream;
};

// Bytes of one layer's tensors in Q4_K (4.5 bits a weight), with wv and the down projection in Q6_K (6.5625 bits), as
// in a Q4_K_M file; the norms are f32.
static const size_t layer_tensor_bytes[TENSORS_PER_LAYER] = {
    9437184, 9437184, 13762560, 9437184,  // attention q, k, v, output
    25362432, 25362432, 36986880,         // feed-forward gate, up, down
    16384, 16384,                         // norms
};

static int failed(const char *what, size_t bytes, hipError_t status) {
    fprintf(stderr, "ggml_hip: allocating %.2f MiB for the %s on device 0: %s\n", (double)bytes / (1 << 20), what,
            hipGetErrorString(status));
    return 1;
}

static int allocate(void **pointer, size_t bytes, const char *what) {
    hipError_t status = hipMalloc(pointer, bytes);
    return status == hipSuccess ? 0 : failed(what, bytes, status);
}

static void upload(struct model *model, void *tensor, size_t bytes) {
    size_t buffer = 0;
    for (size_t done = 0; done < bytes; done += STAGING_BYTES) {
        size_t part = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        void *staging = model->staging[buffer++ % STAGING_BUFFERS];
        MUST(hipMemcpyAsync((char *)tensor + done, staging, part, hipMemcpyHostToDevice, model->stream));
    }
    MUST(hipStreamSynchronize(model->stream));
}

static int load_tensor(struct model *model, size_t bytes) {
    void **tensor = &model->tensors[model->tensor_count];
    if (allocate(tensor, bytes, "weights")) return 1;
    model->tensor_count++;
    upload(model, *tensor, bytes);
    return 0;
}

static int load_weights(struct model *model) {
    for (size_t i = 0; i < STAGING_BUFFERS; i++) {
        hipError_t status = hipHostMalloc(&model->staging[i], STAGING_BYTES, 0);
        if (status != hipSuccess) return failed("staging", STAGING_BYTES, status);
    }
    for (size_t layer = 0; layer < model->layers; layer++)
        for (size_t i = 0; i < TENSORS_PER_LAYER; i++)
            if (load_tensor(model, layer_tensor_bytes[i])) return 1;
    if (load_tensor(model, (size_t)EMBEDDING * VOCABULARY * 105 / 128)) return 1;  // output matrix, Q6_K
    if (load_tensor(model, EMBEDDING * 4)) return 1;
    for (size_t i = 0; i < STAGING_BUFFERS; i++) {
        MUST(hipHostFree(model->staging[i]));
        model->staging[i] = NULL;
    }
    return 0;
}

// One half of one layer's cache: a larger buffer, the old content copied over, the old one given back.
static int grow_half(struct model *model, void **half, size_t context) {
    void *larger;
    if (allocate(&larger, context * KV_BYTES_PER_TOKEN, "KV cache")) return 1;
    MUST(hipMemsetAsync(larger, 0, context * KV_BYTES_PER_TOKEN, model->stream));
    if (*half) {
        size_t old = model->context * KV_BYTES_PER_TOKEN;
        MUST(hipMemcpyAsync(larger, *half, old, hipMemcpyDeviceToDevice, model->stream));
        MUST(hipStreamSynchronize(model->stream));
        MUST(hipFree(*half));
    }
    *half = larger;
    return 0;
}

static int grow_cache(struct model *model, size_t context) {
    for (size_t layer = 0; layer < model->layers; layer++)
        if (grow_half(model, &model->k[layer], context) || grow_half(model, &model->v[layer], context)) return 1;
    model->context = context;
    // Attention scores of a batch grow with the context.
    size_t bytes = 70 * MiB + context * 32 * 512 * 2;
    MUST(hipFree(model->compute));
    model->compute = NULL;
    if (allocate(&model->compute, bytes, "compute buffer")) return 1;
    return 0;
}

static void decode_token(struct model *model) {
    static float embedding[EMBEDDING], logits[VOCABULARY];
    MUST(hipMemcpyAsync(model->compute, embedding, sizeof embedding, hipMemcpyHostToDevice, model->stream));
    // The kernels write K and V of this token; there are none here, so the cache stays as it is.
    for (size_t kernel = 0; kernel <= model->layers * KERNELS_PER_LAYER; kernel++) MUST(launch_kernel());
    MUST(hipMemcpyAsync(logits, model->compute, sizeof logits, hipMemcpyDeviceToHost, model->stream));
    MUST(hipStreamSynchronize(model->stream));
}

static int decode(struct model *model, const struct options *options) {
    for (size_t token = 0; token < options->tokens && token < options->context; token++) {
        if (token == model->context) {
            size_t larger = model->context * 2;
            if (grow_cache(model, larger < options->context ? larger : options->context)) return 1;
        }
        decode_token(model);
    }
    return 0;
}

static void unload(struct model *model) {
    for (size_t i = 0; i < model->tensor_count; i++) MUST(hipFree(model->tensors[i]));
    for (size_t layer = 0; layer < model->layers; layer++) {
        MUST(hipFree(model->k[layer]));
        MUST(hipFree(model->v[layer]));
    }
    MUST(hipFree(model->compute));
    MUST(hipStreamDestroy(model->stream));
    free(model->tensors);
    free(model->k);
    free(model->v);
}

static int run(const struct options *options, int talk) {
    struct model model = {.layers = options->layers};
    model.tensors = calloc(options->layers * TENSORS_PER_LAYER + 2, sizeof *model.tensors);
    model.k = calloc(options->layers, sizeof *model.k);
    model.v = calloc(options->layers, sizeof *model.v);
    if (!model.tensors || !model.k || !model.v) return 1;
    MUST(hipStreamCreate(&model.stream));
    if (load_weights(&model)) return 1;
    if (talk) printf("llama_like: %zu tensors loaded\n", model.tensor_count);
    size_t first = options->context < FIRST_CONTEXT ? options->context : FIRST_CONTEXT;
    if (grow_cache(&model, first) || decode(&model, options)) return 1;
    if (talk) printf("llama_like: decoded, KV cache for %zu tokens\n", model.context);
    unload(&model);
    return 0;
}

static int read_options(int argc, char **argv, struct options *options) {
    for (int i = 1; i < argc; i += 2) {
        size_t *option = !strcmp(argv[i], "--layers") ? &options->layers
                         : !strcmp(argv[i], "--ctx")  ? &options->context
                         : !strcmp(argv[i], "--tokens") ? &options->tokens
                         : !strcmp(argv[i], "--loop") ? &options->loops
                                                      : NULL;
        if (!option || i + 1 == argc) return 0;
        *option = strtoul(argv[i + 1], NULL, 10);
    }
    return options->layers > 0 && options->context > 0;
}

int main(int argc, char **argv) {
    struct options options = {.layers = 32, .context = 32768, .tokens = 20000, .loops = 1};
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: llama_like [--layers N] [--ctx N] [--tokens N] [--loop N]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);  // in order with stderr, wherever both go
    for (size_t i = 0; i < options.loops; i++)
        if (run(&options, i == 0)) return 1;
    return 0;
}
