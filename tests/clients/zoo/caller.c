// A library that is loaded under another's file name: it makes a process look like that one's user, and asks for memory in
// that one's name, by functions whose names call paths then have.
#include <stddef.h>

#define ASKS(name)                                                             \
    int name(int (*allocate)(void **, size_t), void **pointer, size_t size) { \
        int status = allocate(pointer, size);                                  \
        return status;                                                         \
    }

ASKS(scene_allocate)
ASKS(attention_forward)
ASKS(log_softmax_forward)
