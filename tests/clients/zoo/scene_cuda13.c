// Plays the script that is its argument over a CUDA runtime that asks the driver for everything.
#include "scene_cuda.c"
