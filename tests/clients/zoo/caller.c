// A library that is loaded under another's file name: it makes a process look like that one's user, and asks for memory in
// that one's name.
#include <stddef.h>

int scene_allocate(int (*allocate)(void **, size_t), void **pointer, size_t size) {
    int status = allocate(pointer, size);
    return status;
}
