// A card of amdgpu's that ROCm's user space can live on: what the parts behind the kernel's requests share.
#ifndef SIM_AMDGPU_H
#define SIM_AMDGPU_H

#include "../engine/chips.h"
#include "../kfd/kernel.h"

// SIM_GFX.
const struct chip *chip(void);

// memory.c
int export_memory(unsigned char *payload);
int describe_export(unsigned char *payload);
void *map_node(void *address, size_t length, int flags, bool is_kfd, uint64_t offset);

// queue.c
int update_queue(const unsigned char *payload);

// graphics.c. What a program needs that records work for the card by the DRM.
int graphics_request(unsigned number, unsigned char *payload);

// events.c
int create_event(unsigned char *payload);

#endif
