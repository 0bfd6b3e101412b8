// The same for CUDA up to 12, where the device has an old name to be waited for by.
#define CUDA
#include "waits.c"
