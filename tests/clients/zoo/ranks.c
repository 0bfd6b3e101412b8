// A job of ranks, as torchrun starts one: the launcher sets RANK, LOCAL_RANK and WORLD_SIZE and execs itself; it makes no
// GPU call. Rank r uses device LOCAL_RANK modulo the number of devices (SIM_DEVICES).
//   in turn     each rank takes 150 MiB and gives them back: its own peak, at a moment of its own
//   together    each rank takes 100 MiB and 10 more per rank, and keeps them
//   at last     the rank that the argument names asks for more than a card has, says so, and exits with 1; the others
//               give back what they have and exit with 0
// What the ranks of a device hold together is most when all have taken theirs, which is not the sum of their own peaks.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip_min.h"

enum { MOST_RANKS = 16, GO = 200, DONE = 201 };  // numbers of the pipes' descriptors in a rank

static void wait_for_word(int from) {
    char word;
    if (read(from, &word, 1) != 1) exit(72);
}

static void say_word(int to) {
    if (write(to, "w", 1) != 1) exit(73);
}

static int rank_main(int fails) {
    int rank = atoi(getenv("RANK")), devices;
    void *block;
    wait_for_word(GO);
    MUST(hipGetDeviceCount(&devices));
    MUST(hipSetDevice(atoi(getenv("LOCAL_RANK")) % devices));
    MUST(hipMalloc(&block, 150 * MiB));
    MUST(hipFree(block));
    say_word(DONE);
    wait_for_word(GO);
    MUST(hipMalloc(&block, (100 + (size_t)rank * 10) * MiB));
    say_word(DONE);
    wait_for_word(GO);
    if (rank == fails) {
        void *more;
        hipError_t status = hipMalloc(&more, (size_t)1 << 40);
        fprintf(stderr, "rank %d: %s\n", rank, hipGetErrorString(status));
        return 1;
    }
    MUST(hipFree(block));
    return 0;
}

struct rank {
    pid_t pid;
    int go, done;
};

static struct rank start(char *self, char *fails, int rank, int ranks) {
    int go[2], done[2];
    if (pipe(go) || pipe(done)) exit(74);
    pid_t pid = fork();
    if (pid == 0) {
        char number[16], all[16];
        snprintf(number, sizeof number, "%d", rank);
        snprintf(all, sizeof all, "%d", ranks);
        setenv("RANK", number, 1);
        setenv("LOCAL_RANK", number, 1);
        setenv("WORLD_SIZE", all, 1);
        dup2(go[0], GO);
        dup2(done[1], DONE);
        execl(self, self, "rank", fails, (char *)NULL);
        _exit(75);
    }
    close(go[0]);
    close(done[1]);
    return (struct rank){pid, go[1], done[0]};
}

static int end_of(struct rank rank) {
    int status;
    waitpid(rank.pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int count, char **arguments) {
    if (count < 3) return 64;
    if (strcmp(arguments[1], "rank") == 0) return rank_main(atoi(arguments[2]));
    int ranks = atoi(arguments[1]), fails = atoi(arguments[2]);
    struct rank all[MOST_RANKS];
    for (int i = 0; i < ranks; i++) all[i] = start(arguments[0], arguments[2], i, ranks);
    for (int phase = 0; phase < 2; phase++) {
        for (int i = 0; i < ranks; i++) {
            say_word(all[i].go);
            wait_for_word(all[i].done);
        }
    }
    // The one that fails first, so that the others' frees come after it.
    if (fails < ranks) {
        say_word(all[fails].go);
        printf("rank %d: %d\n", fails, end_of(all[fails]));
    }
    for (int i = 0; i < ranks; i++) {
        if (i == fails) continue;
        say_word(all[i].go);
        printf("rank %d: %d\n", i, end_of(all[i]));
    }
    return 0;
}
