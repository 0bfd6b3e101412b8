// Runs a program in a root tree of its own, on a simulated machine:
//
//     enter TREE MOUNT_POINT PROGRAM ARGUMENT...
//
// TREE has the software (its /usr and /etc), MOUNT_POINT is an empty folder. What is below it is seen by this process and its
// children alone (a private mount namespace), so that nothing stays behind. The program starts in the same folder.
//
//     SIM_BIND      folders of this machine that are there, too, at their own places; by colons
//     SIM_PRELOAD   what LD_PRELOAD is for the program
//     SIM_GFX, SIM_DEVICES, SIM_CAPACITY   the cards, as for the library that answers for them
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

// This program could not do its part: no status of the program's.
enum { CANNOT_ENTER = 125 };

void must(int holds, const char *what, const char *path) {
    if (holds) return;
    fprintf(stderr, "enter: %s: %s: %s\n", what, path, strerror(errno));
    exit(CANNOT_ENTER);
}

static const char *below(const char *root, const char *path) {
    static char full[2][1024];
    static int turn;
    char *at = full[turn ^= 1];
    snprintf(at, sizeof full[0], "%s%s", root, path);
    return at;
}

static void make_folder(const char *path) {
    char full[1024];
    snprintf(full, sizeof full, "%s", path);
    for (char *at = full + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        must(mkdir(full, 0755) == 0 || errno == EEXIST, "mkdir", full);
        *at = '/';
    }
    must(mkdir(full, 0755) == 0 || errno == EEXIST, "mkdir", full);
}

static void bind_folder(const char *from, const char *root, const char *to) {
    const char *target = below(root, to);
    make_folder(target);
    must(mount(from, target, NULL, MS_BIND | MS_REC, NULL) == 0, "mount", from);
}

static void bind_node(const char *root, const char *path) {
    const char *target = below(root, path);
    int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(fd >= 0, "create", target);
    close(fd);
    must(mount(path, target, NULL, MS_BIND, NULL) == 0, "mount", path);
}

static void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write", path);
    close(fd);
}

// Whoever isn't root becomes it in a namespace of users, where the kernel allows that.
static void leave_the_machine(void) {
    unsigned user = getuid(), group = getgid();
    must(unshare(CLONE_NEWNS | (user ? CLONE_NEWUSER : 0)) == 0, "unshare", "a mount namespace");
    if (user) {
        char map[64];
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", user);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", group);
        write_text("/proc/self/gid_map", map);
    }
    must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "mount", "/");
}

static void build_root(const char *tree, const char *root) {
    must(mount("tmpfs", root, "tmpfs", 0, "mode=0755") == 0, "mount", root);
    bind_folder(below(tree, "/usr"), root, "/usr");
    bind_folder(below(tree, "/etc"), root, "/etc");
    bind_folder("/proc", root, "/proc");
    const char *links[] = {"/bin", "/lib", "/lib64"};
    for (int i = 0; i < 3; i++) {
        must(symlink(below("usr", links[i]), below(root, links[i])) == 0, "symlink", links[i]);
    }
    make_folder(below(root, "/dev"));
    const char *nodes[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
    for (int i = 0; i < 5; i++) bind_node(root, nodes[i]);
    make_folder(below(root, "/dev/shm"));
    // HIP's compiler library wants it.
    make_folder(below(root, "/tmp"));
    char *folders = strdup(getenv("SIM_BIND") ? getenv("SIM_BIND") : "");
    for (char *folder = strtok(folders, ":"); folder; folder = strtok(NULL, ":")) bind_folder(folder, root, folder);
    free(folders);
}

static uint64_t size_setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end == 'G' ? value << 30 : *end == 'M' ? value << 20 : *end == 'K' ? value << 10 : value;
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: enter TREE MOUNT_POINT PROGRAM ARGUMENT...\n");
        return CANNOT_ENTER;
    }
    char here[1024], root[1024];
    must(getcwd(here, sizeof here) != NULL, "getcwd", ".");
    must(realpath(arguments[2], root) != NULL, "no such folder", arguments[2]);
    leave_the_machine();
    build_root(arguments[1], root);
    const char *chip = getenv("SIM_GFX");
    make_machine(root, chip ? chip : "gfx1030", (int)size_setting("SIM_DEVICES", 1),
                 size_setting("SIM_CAPACITY", (uint64_t)8 << 30), size_setting("SIM_GTT", (uint64_t)8 << 30));
    must(chroot(root) == 0, "chroot", root);
    must(chdir(here) == 0, "chdir", here);
    setenv("SIM_ROOT", "/", 1);
    const char *preload = getenv("SIM_PRELOAD");
    if (preload) setenv("LD_PRELOAD", preload, 1);
    execv(arguments[3], arguments + 3);
    must(0, "execute", arguments[3]);
}
