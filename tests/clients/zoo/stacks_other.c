// Another build of the plugin of stacks.c: the same function with another frame.
#define FRAME_BYTES 3000
#include "stacks.c"
