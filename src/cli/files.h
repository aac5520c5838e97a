#ifndef ATTN_CLI_FILES_H
#define ATTN_CLI_FILES_H
#include <stdint.h>

enum { PATH_ROOM = 4096 };

/* FOLDER/NAME. 0, or the exit status after one line when the path is too long. */
int path_in(const char *folder, const char *name, char path[PATH_ROOM]);

int file_exists(const char *path); /* -1, after one line: the system cannot say */
int folder_exists(const char *path);

/* Makes a folder and those above it, as far as they are missing. 0, or the exit status after one line. */
int make_folder(const char *path);

/* Deletes the temporary files that killed processes have left in a folder: those of this program and of the library. */
void remove_leftovers(const char *folder);

/* Writes a whole file beside the old one and puts it in its place: the file on disk is the old one or the new one. On failure *problem
   is the system's reason and the result is not 0; nothing is printed. */
int replace_file(const char *path, const char *at, int64_t bytes, const char **problem);
#endif
