#include "files.h"
#include <errno.h>
#include <fcntl.h>
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
    return stat(path, &about) == 0 && !S_ISDIR(about.st_mode);
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
    snprintf(beside, sizeof beside, "%s.%lld.tmp", path, (long long)getpid());
    int descriptor = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = descriptor < 0 ? errno : write_out(descriptor, at, bytes);
    if (descriptor >= 0 && close(descriptor) != 0 && error == 0) error = errno;
    if (error == 0 && rename(beside, path) != 0) error = errno;
    if (error != 0 && descriptor >= 0) unlink(beside);
    *problem = error != 0 ? strerror(error) : NULL;
    return error != 0;
}
