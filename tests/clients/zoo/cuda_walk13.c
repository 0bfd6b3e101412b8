// The walk of walk.c over a CUDA runtime that asks the driver for everything.
// After any number of steps the account must be what the log of the device says, byte by byte.
#define CUDA 1
#include "walk.c"
