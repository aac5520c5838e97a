#include <attn/attn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "formats/replace.h"

/* These stand before the C library's own: each system call of a replacement can be made to fail. */
static struct {
    int fsync, fsync_folder, close, write, rename, mode, shorten, interrupt, interrupt_folder;
} fail;

int open(const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned permissions = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    if (flags & O_DIRECTORY && fail.interrupt_folder-- > 0) {
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, name, flags, permissions);
}

int fsync(int descriptor)
{
    struct stat about;
    int is_folder = fstat(descriptor, &about) == 0 && S_ISDIR(about.st_mode);
    errno = is_folder ? fail.fsync_folder : fail.fsync;
    return errno != 0 ? -1 : (int)syscall(SYS_fsync, descriptor);
}

int close(int descriptor)
{
    struct stat about;
    int error = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) ? fail.close : 0;
    int result = (int)syscall(SYS_close, descriptor);
    if (error == 0) return result;
    errno = error;
    return -1;
}

ssize_t write(int descriptor, const void *bytes, size_t count)
{
    if (descriptor > 2 && fail.interrupt-- > 0) {
        errno = EINTR;
        return -1;
    }
    if (descriptor > 2 && fail.shorten > 0 && count > (size_t)fail.shorten) count = (size_t)fail.shorten;
    if (descriptor > 2 && fail.write != 0 && fail.shorten-- <= 0) {
        errno = fail.write;
        return -1;
    }
    return syscall(SYS_write, descriptor, bytes, count);
}

int rename(const char *from, const char *to)
{
    errno = fail.rename;
    return errno != 0 ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fchmod(int descriptor, mode_t mode)
{
    errno = fail.mode;
    return errno != 0 ? -1 : (int)syscall(SYS_fchmod, descriptor, mode);
}

static attn_context *ctx;
static char folder[] = "/tmp/attn-test-XXXXXX";
static char path[64], link_path[64];

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    attn_context_options options;
    attn_context_options_init(&options, sizeof options);
    options.threads = 1;
    return attn_context_create(&options, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    rmdir(folder);
    attn_context_free(ctx);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    memset(&fail, 0, sizeof fail);
    unlink(link_path);
    chmod(path, 0644);
    return 0;
}

static void expect_content(const char *where, const char *text)
{
    char buffer[64] = "";
    FILE *file = fopen(where, "rb");
    assert_non_null(file);
    buffer[fread(buffer, 1, sizeof buffer - 1, file)] = 0;
    fclose(file);
    assert_string_equal(buffer, text);
}

static int entries(void)
{
    int count = 0;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream))
        count += entry->d_name[0] != '.' || entry->d_name[1] == 'a';
    closedir(stream);
    return count;
}

static attn_status replace(const char *where, const char *text)
{
    size_t half = strlen(text) / 2;
    const attn__piece pieces[4] = {{NULL, 0}, {text, (int64_t)half}, {NULL, 0}, {text + half, (int64_t)(strlen(text) - half)}};
    return attn__file_replace(ctx, where, pieces, 4);
}

static void test_replaces(void **state)
{
    (void)state;
    unlink(path);
    mode_t old = umask(027);
    assert_int_equal(replace(path, "first"), ATTN_OK);
    struct stat about;
    stat(path, &about);
    assert_int_equal(about.st_mode & 0777, 0640);
    umask(old);
    expect_content(path, "first");
    fail.shorten = 1; /* a byte at a time, interrupted at first */
    fail.interrupt = 3;
    chmod(path, 0600);
    assert_int_equal(replace(path, "the second text"), ATTN_OK);
    expect_content(path, "the second text");
    stat(path, &about);
    assert_int_equal(about.st_mode & 0777, 0600); /* permissions stay */
    assert_int_equal(entries(), 1);
    assert_int_equal(attn__file_replace(ctx, path, NULL, 0), ATTN_OK);
    expect_content(path, "");
}

typedef struct failure {
    int *error;
    int value;
    const char *says;
} failure;

static void test_failure_leaves_the_old_file(void **state)
{
    (void)state;
    const failure failures[] = {
        {&fail.write, ENOSPC, "cannot be written: No space left"}, {&fail.write, EIO, "cannot be written: Input/output"},
        {&fail.fsync, EIO, "flushed to the disk: Input/output"},   {&fail.close, EDQUOT, "cannot be closed"},
        {&fail.rename, EACCES, "put in place: Permission denied"}, {&fail.mode, EPERM, "permissions cannot be kept"},
    };
    assert_int_equal(replace(path, "old"), ATTN_OK);
    chmod(path, 0600);
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        *failures[i].error = failures[i].value;
        fail.shorten = i == 0 ? 2 : 0; /* the disk is full after a part was written */
        assert_int_equal(replace(path, "something new"), ATTN_ERROR_IO);
        memset(&fail, 0, sizeof fail);
        assert_non_null(strstr(attn_context_last_error(ctx), failures[i].says));
        assert_non_null(strstr(attn_context_last_error(ctx), path));
        expect_content(path, "old");
        assert_int_equal(entries(), 1);
    }
    fail.fsync_folder = EINVAL; /* a file system that cannot */
    assert_int_equal(replace(path, "new"), ATTN_OK);
    fail.fsync_folder = EIO;
    fail.interrupt_folder = 2; /* it is opened all the same */
    assert_int_equal(replace(path, "newer"), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "was replaced"));
    expect_content(path, "newer");
    assert_int_equal(entries(), 1);
}

/* A name without a folder lies in the present one, which is flushed as any other. */
static void test_flushes_the_present_folder(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    fail.fsync_folder = EIO;
    attn_status status = replace("file", "flushed");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "was replaced"));
    expect_content(path, "flushed");
}

/* A file size limit is an error; the signal that comes with it, deadly by default, is not seen by the caller. */
static void test_size_limit(void **state)
{
    (void)state;
    assert_int_equal(replace(path, "old"), ATTN_OK);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 8;
    setrlimit(RLIMIT_FSIZE, &small);
    attn_status status = replace(path, "much longer than eight bytes");
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "File too large"));
    expect_content(path, "old");
    assert_int_equal(entries(), 1);
    sigset_t set;
    sigpending(&set);
    assert_false(sigismember(&set, SIGXFSZ));
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGXFSZ));
}

/* a signal of the caller's own that waits already goes on waiting */
static void test_size_limit_with_a_signal_pending(void **state)
{
    (void)state;
    struct rlimit before, small;
    struct timespec at_once = {0, 0};
    sigset_t limit, mask, pending;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &mask);
    raise(SIGXFSZ);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 8;
    setrlimit(RLIMIT_FSIZE, &small);
    attn_status status = replace(path, "much longer than eight bytes");
    setrlimit(RLIMIT_FSIZE, &before);
    sigpending(&pending);
    int waits = sigismember(&pending, SIGXFSZ);
    if (waits) sigtimedwait(&limit, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    assert_int_equal(status, ATTN_ERROR_IO);
    assert_true(waits);
}

static void test_links(void **state)
{
    (void)state;
    char second[64], target[64] = "";
    struct stat about;
    snprintf(second, sizeof second, "%s/second", folder);
    assert_int_equal(symlink("file", link_path), 0); /* relative to the folder of the link, not to ours */
    assert_int_equal(symlink(link_path, second), 0);
    assert_int_equal(replace(second, "through two links"), ATTN_OK);
    expect_content(path, "through two links");
    assert_int_equal(lstat(second, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(readlink(link_path, target, sizeof target - 1), 4);
    unlink(path); /* links to nothing yet */
    assert_int_equal(replace(second, "made"), ATTN_OK);
    expect_content(path, "made");
    unlink(second);
    unlink(link_path);
    assert_int_equal(symlink("link", link_path), 0);
    assert_int_equal(replace(link_path, "round"), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "Too many levels"));
    unlink(link_path);
    assert_int_equal(symlink("/dev/full", link_path), 0);
    assert_int_equal(replace(link_path, "device"), ATTN_ERROR_IO); /* never in the place of a device */
    assert_non_null(strstr(attn_context_last_error(ctx), "not a regular file"));
}

static void test_bad_paths(void **state)
{
    (void)state;
    char missing[96];
    static char endless[8192];
    snprintf(missing, sizeof missing, "%s/none/file", folder);
    assert_int_equal(replace(missing, "x"), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "No such file"));
    snprintf(missing, sizeof missing, "%s/file/file", folder);
    assert_int_equal(replace(missing, "x"), ATTN_ERROR_IO);
    snprintf(missing, sizeof missing, "%s/new/", folder);
    assert_int_equal(replace(missing, "x"), ATTN_ERROR_IO);
    assert_int_equal(replace(folder, "x"), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "Is a directory"));
    assert_int_equal(replace("", "x"), ATTN_ERROR_IO);
    memset(endless, 'x', sizeof endless - 1);
    assert_int_equal(replace(endless, "x"), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "name too long"));
    if (geteuid() == 0) return; /* root writes everywhere */
    chmod(folder, 0500);
    attn_status status = replace(path, "x");
    chmod(folder, 0700);
    assert_int_equal(status, ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "Permission denied"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_replaces, clean),
        cmocka_unit_test_teardown(test_failure_leaves_the_old_file, clean),
        cmocka_unit_test_teardown(test_size_limit, clean),
        cmocka_unit_test_teardown(test_links, clean),
        cmocka_unit_test_teardown(test_bad_paths, clean),
        cmocka_unit_test_teardown(test_size_limit_with_a_signal_pending, clean),
        cmocka_unit_test_teardown(test_flushes_the_present_folder, clean),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
