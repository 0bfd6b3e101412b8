// How a row becomes an exported function. A self-call (one exported function calling another through the PLT, where a
// preloaded library sees it) happens only where a body says so: bodies call each other by their hidden sim_ names.
#ifndef SIM_FRONT_END_H
#define SIM_FRONT_END_H

#include "sim.h"

#define EXPORT __attribute__((visibility("default")))

#define EXPORTED(name, body, parameters, arguments)          \
    EXPORT int name parameters {                             \
        const char *enclosing = sim_enter(#name);            \
        return sim_leave(enclosing, sim_##body arguments);   \
    }

#endif
