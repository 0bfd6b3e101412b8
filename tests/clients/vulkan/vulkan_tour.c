// Memory by Vulkan:
//
//     vulkan_tour            blocks of 512 MiB of the card until one is refused, then all are freed
//     vulkan_tour half       as many as the first heap of the card can hold half of, and no refusal
//     vulkan_tour leak       40 steps, each with a block of 512 MiB that is freed and one of 64 MiB that is not
//
// Before, a block that the processor sees is written and read, and a buffer is bound to it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define MIB ((VkDeviceSize)1 << 20)
#define BLOCK (512 * MIB)
enum { MAX_BLOCKS = 256 };

static void must(VkResult result, const char *what) {
    if (result == VK_SUCCESS) return;
    printf("%s: %d\n", what, result);
    exit(1);
}

static VkPhysicalDevice first_card(VkInstance instance) {
    uint32_t count = 1;
    VkPhysicalDevice card;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, &card);
    if (result != VK_INCOMPLETE) must(result, "cards");
    if (count == 0) must(VK_ERROR_INITIALIZATION_FAILED, "no card");
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(card, &properties);
    printf("%s\n", properties.deviceName);
    return card;
}

static VkDevice make_device(VkPhysicalDevice card) {
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue};
    VkDevice device;
    must(vkCreateDevice(card, &info, NULL, &device), "device");
    return device;
}

// The first type with all of these properties; its heap's size.
static uint32_t type_with(VkPhysicalDevice card, VkMemoryPropertyFlags wanted, VkDeviceSize *heap) {
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(card, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        if ((memory.memoryTypes[i].propertyFlags & wanted) != wanted) continue;
        *heap = memory.memoryHeaps[memory.memoryTypes[i].heapIndex].size;
        return i;
    }
    must(VK_ERROR_FEATURE_NOT_PRESENT, "a type of memory");
    return 0;
}

static VkResult take(VkDevice device, uint32_t type, VkDeviceSize size, VkDeviceMemory *memory) {
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = size, .memoryTypeIndex = type};
    return vkAllocateMemory(device, &info, NULL, memory);
}

// 16 MiB that the processor sees, with a buffer in it.
static void visible_memory(VkPhysicalDevice card, VkDevice device) {
    VkDeviceSize heap;
    uint32_t type = type_with(card, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, &heap);
    VkDeviceMemory memory;
    VkBuffer buffer;
    VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = 16 * MIB, .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    void *bytes;
    must(take(device, type, 16 * MIB, &memory), "visible memory");
    must(vkCreateBuffer(device, &info, NULL, &buffer), "buffer");
    must(vkBindBufferMemory(device, buffer, memory, 0), "bind");
    must(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, &bytes), "map");
    memset(bytes, 42, 16 * MIB);
    printf("visible: %d\n", ((char *)bytes)[16 * MIB - 1]);
    vkUnmapMemory(device, memory);
    vkDestroyBuffer(device, buffer, NULL);
    vkFreeMemory(device, memory, NULL);
}

static void leak(VkDevice device, uint32_t type) {
    for (int step = 0; step < 40; step++) {
        VkDeviceMemory block, kept;
        must(take(device, type, BLOCK, &block), "block");
        must(take(device, type, 64 * MIB, &kept), "kept");
        vkFreeMemory(device, block, NULL);
    }
    puts("leaked");
}

int main(int count, char **arguments) {
    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkInstance instance;
    must(vkCreateInstance(&info, NULL, &instance), "instance");
    VkPhysicalDevice card = first_card(instance);
    VkDevice device = make_device(card);
    visible_memory(card, device);
    VkDeviceSize heap;
    uint32_t type = type_with(card, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &heap);
    if (count > 1 && strcmp(arguments[1], "leak") == 0) {
        leak(device, type);
        return 0;
    }
    int wanted = count > 1 && strcmp(arguments[1], "half") == 0 ? (int)(heap / BLOCK / 2) : MAX_BLOCKS;
    VkDeviceMemory blocks[MAX_BLOCKS];
    VkResult result = VK_SUCCESS;
    int held = 0;
    while (held < wanted && (result = take(device, type, BLOCK, &blocks[held])) == VK_SUCCESS) held++;
    printf("%d blocks, then %d\n", held, result);
    while (held > 0) vkFreeMemory(device, blocks[--held], NULL);
    vkDestroyDevice(device, NULL);
    vkDestroyInstance(instance, NULL);
    puts("done");
    return 0;
}
