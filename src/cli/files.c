#include "files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "message.h"

int path_in(const char *folder, const char *name, char path[PATH_ROOM])
{
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    if (snprintf(path, PATH_ROOM, "%s%s%s", folder, slash, name) < PATH_ROOM) return 0;
    return fail(EXIT_INPUT, "%.200s...: the path is too long", folder);
}

int file_exists(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0) return !S_ISDIR(about.st_mode);
    if (errno == ENOENT || errno == ENOTDIR) return 0;
    fail(EXIT_MACHINE, "%s: cannot be examined: %s", path, strerror(errno));
    return -1;
}

int folder_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

int make_folder(const char *path)
{
    char at[PATH_ROOM];
    if (*path == 0) return fail(EXIT_INPUT, "--out: got \"\", expected the name of a folder");
    if (path_in(path, "", at) != 0) return EXIT_INPUT;
    for (char *c = at + 1; *c != 0; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (mkdir(at, 0777) != 0 && !folder_exists(at)) {
            int error = errno;
            if (error == EEXIST) return fail(EXIT_INPUT, "%s: is a file, expected a folder", at);
            return fail(error == ENOTDIR ? EXIT_INPUT : EXIT_MACHINE, "%s: cannot be made: %s", at, strerror(error));
        }
        *c = '/';
    }
    return 0;
}

/* the process that makes a temporary file of this name, ".attn-PROCESS-RANDOM.tmp" (the library's) or "NAME.attn-PROCESS.tmp"; 0: none does */
static long long maker_of(const char *name)
{
    const char *mark = strstr(name, ".attn-");
    long long process = 0;
    int used = 0, more = 0;
    if (mark == NULL || sscanf(mark, ".attn-%lld%n", &process, &used) != 1 || process <= 0) return 0;
    if (mark == name) (void)sscanf(mark + used, "-%*16[0-9a-f]%n", &more);
    return strcmp(mark + used + more, ".tmp") == 0 ? process : 0;
}

void remove_leftovers(const char *folder)
{
    DIR *list = opendir(folder);
    if (list == NULL) return;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        long long process = maker_of(entry->d_name);
        /* a process of the same number, in a container that was started again: this one has made none yet */
        if (process > 0 && (process == getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH)))
            unlinkat(dirfd(list), entry->d_name, 0);
    }
    closedir(list);
}

static int write_out(int descriptor, const char *at, int64_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(descriptor, at, (size_t)bytes);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return errno;
        at += wrote;
        bytes -= wrote;
    }
    return fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
}

int replace_file(const char *path, const char *at, int64_t bytes, const char **problem)
{
    char beside[PATH_ROOM + 32];
    snprintf(beside, sizeof beside, "%s.attn-%lld.tmp", path, (long long)getpid());
    int descriptor = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = descriptor < 0 ? errno : write_out(descriptor, at, bytes);
    if (descriptor >= 0 && close(descriptor) != 0 && error == 0) error = errno;
    if (error == 0 && rename(beside, path) != 0) error = errno;
    if (error != 0 && descriptor >= 0) unlink(beside);
    *problem = error != 0 ? strerror(error) : NULL;
    return error != 0;
}
