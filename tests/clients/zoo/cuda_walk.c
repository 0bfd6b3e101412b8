// The walk of walk.c over the CUDA runtime.
// After any number of steps the account must be what the log of the device says, byte by byte.
#define CUDA 1
#include "walk.c"
