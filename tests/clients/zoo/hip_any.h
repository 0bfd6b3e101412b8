// Whichever HIP there is. Releases have different functions, so none is linked.
#ifndef HIP_ANY_H
#define HIP_ANY_H

#include <dlfcn.h>

#include "hip_min.h"

static void *hip;

static void load_hip(void) {
    hip = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_GLOBAL);
    if (!hip) hip = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_GLOBAL);
    if (!hip) {
        fprintf(stderr, "%s\n", dlerror());
        exit(70);
    }
}

#define FUNCTION(name) ((__typeof(name) *)dlsym(hip, #name))

#endif
