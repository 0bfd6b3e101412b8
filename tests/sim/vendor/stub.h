// What the generated stubs and the hand-written answers of NVIDIA's libraries are made of.
#ifndef STUB_H
#define STUB_H

#define EXPORT __attribute__((visibility("default")))

// Appends the function's name to SIM_STUB_LOG, and answers the status.
int stub_called(const char *function, int status);

// Nothing is known about the function but its name. Weak: an answer, or the simulated runtime's function, wins.
#define STUB(function, status) \
    EXPORT __attribute__((weak)) int function(void) { return stub_called(#function, status); }
#define TEXT_STUB(function) \
    EXPORT __attribute__((weak)) const char *function(void) { return "a text of a simulated library"; }

// Work that nobody looks at the result of: done.
#define DONE(function) \
    EXPORT int function(void) { return 0; }

// Makes an object; what all handles point to is nobody's business.
#define CREATES(function)                 \
    EXPORT int function(void **handle) {  \
        static char object[64];           \
        *handle = object;                 \
        return 0;                         \
    }

#endif
