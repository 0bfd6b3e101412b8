// Closes stderr and opens its data file, which gets number 2. Then an allocation fails and the program goes on, which
// is when a recorder has something to say.
// The data file must hold the program's two lines and nothing else.
#include <fcntl.h>
#include <unistd.h>

#include "hip_min.h"

static void say(int fd, const char *line, size_t size) {
    if (write(fd, line, size) != (ssize_t)size) exit(75);
}

int main(void) {
    void *block, *too_big;
    close(2);
    int data = open("data.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (data != 2) return 78;
    say(data, "first\n", 6);
    MUST(hipMalloc(&block, 24 * MiB));
    MUST_NOT_FIT(hipMalloc(&too_big, 4096 * GiB));
    MUST(launch_kernel());
    say(data, "second\n", 7);
    return 0;
}
