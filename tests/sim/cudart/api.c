// libcudart.so.13: the exported functions, from the table. None of them calls another one.
#include "cudart.h"

#define EXPORT __attribute__((visibility("default")))

#define DEFINE(symbol, api, need, parameters, expression)                 \
    EXPORT int symbol parameters {                                        \
        int refusal;                                                      \
        enum stream_api stream_api = api;                                 \
        const struct driver *d = rt_begin(stream_api, need, &refusal);    \
        (void)d;                                                          \
        return rt_end(refusal ? refusal : (expression));                  \
    }

#define RT(symbol, parameters, ...) DEFINE(symbol, LEGACY, NEEDS_CONTEXT, parameters, (__VA_ARGS__))
#define RT_ANY(symbol, parameters, ...) DEFINE(symbol, LEGACY, NEEDS_DRIVER, parameters, (__VA_ARGS__))
#define RT_FREE(symbol, parameters, ...) DEFINE(symbol, LEGACY, NEEDS_NOTHING, parameters, (__VA_ARGS__))
#define RT_PTSZ(symbol, parameters, ...)                                  \
    DEFINE(symbol, LEGACY, NEEDS_CONTEXT, parameters, (__VA_ARGS__))      \
    DEFINE(symbol##_ptsz, PER_THREAD, NEEDS_CONTEXT, parameters, (__VA_ARGS__))
#define RT_PTDS(symbol, parameters, ...)                                  \
    DEFINE(symbol, LEGACY, NEEDS_CONTEXT, parameters, (__VA_ARGS__))      \
    DEFINE(symbol##_ptds, PER_THREAD, NEEDS_CONTEXT, parameters, (__VA_ARGS__))

static int put(int *where, int value) {
    if (!where) return SIM_INVALID_VALUE;
    *where = value;
    return SIM_SUCCESS;
}

#include "table.h"

EXPORT const char *cudaGetErrorName(int status) {
    const char *name = sim_status_name(status, SIM_CUDA_RUNTIME);
    return name ? name : "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(int status) {
    const char *text = sim_status_text(status);
    return text ? text : "unrecognized error code";
}

EXPORT struct channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
    return (struct channels){x, y, z, w, kind};
}
