#ifndef SIM_LAUNCH_H
#define SIM_LAUNCH_H

#include <stdint.h>

// Ends the program with one line when it is not so.
void must(int holds, const char *what, const char *path);

// machine.c. Writes below `root` what the kernel shows of a machine with so many cards of that memory, which may have so much
// of the host's: /sys, and the device files, which are plain files.
void make_machine(const char *root, const char *chip_name, int cards, uint64_t capacity_bytes, uint64_t host_capacity_bytes);

#endif
