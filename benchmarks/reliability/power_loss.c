/* A disk that keeps what was synced and nothing else, for LD_PRELOAD.

   fsync and fdatasync of a file below $POWER_LOSS_ROOT copy it to $POWER_LOSS_DISK/ID, those of a
   folder write a list of its names there, one line each: "ID KIND NAME". ID is inode and time of
   birth, so that a file that takes the inode of another one is not taken for it. power_loss.py makes
   of these what a machine finds that has lost its power. Nothing is really synced: that would only
   take time. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_uint copies;

/* Write the ID of a file into id, of 64 bytes; returns its type as in st_mode, 0 if there is none. */
static unsigned identify(int at, const char *name, char *id) {
    struct statx found;
    int flags = *name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (statx(at, name, flags, STATX_INO | STATX_TYPE | STATX_BTIME, &found) != 0) return 0;
    snprintf(id, 64, "%llu-%lld.%09u", (unsigned long long)found.stx_ino,
             (long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    return found.stx_mode & S_IFMT;
}

static int copy_file(int file, int copy) {
    char block[1 << 16];
    off_t at = 0;
    ssize_t got;
    while ((got = pread(file, block, sizeof block, at)) > 0) {
        if (write(copy, block, got) != got) return -1;
        at += got;
    }
    return got < 0 ? -1 : 0;
}

static int list_names(int folder, int copy) {
    DIR *names = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY));
    if (!names) return -1;
    for (struct dirent *entry; (entry = readdir(names));) {
        char id[64], line[512];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        unsigned type = identify(folder, entry->d_name, id);
        int length = snprintf(line, sizeof line, "%s %c %s\n", id, type == S_IFDIR ? 'd' : 'f',
                              entry->d_name);
        if (type && write(copy, line, length) != length) return -1;
    }
    return closedir(names);
}

static int keep(int fd) {
    const char *root = getenv("POWER_LOSS_ROOT"), *disk = getenv("POWER_LOSS_DISK");
    char link[64], path[PATH_MAX], id[64], unborn[PATH_MAX], kept[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    if (!root || !disk || strncmp(path, root, strlen(root)) != 0) return 0;
    unsigned type = identify(fd, "", id);
    snprintf(kept, sizeof kept, "%s/%s", disk, id);
    snprintf(unborn, sizeof unborn, "%s/.%u", disk, atomic_fetch_add(&copies, 1));
    /* The file may be open for writing only. */
    int file = open(path, O_RDONLY), copy = open(unborn, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int failed = file < 0 || copy < 0;
    if (!failed) failed = type == S_IFDIR ? list_names(file, copy) : copy_file(file, copy);
    if (file >= 0) close(file);
    if (copy >= 0) close(copy);
    if (!failed) failed = rename(unborn, kept);
    if (failed) {
        perror("power_loss");
        abort();
    }
    return 0;
}

int fsync(int fd) { return keep(fd); }

int fdatasync(int fd) { return keep(fd); }
