/* The library as a plug-in finds it: dlopen with local symbols, every dependency brought by itself, no initialisation. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *library = dlopen(count > 1 ? arguments[1] : "libattn.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    const char *(*version)(void) = (const char *(*)(void))dlsym(library, "attn_version");
    if (version == NULL || dlsym(library, "attn__fail") != NULL) {
        printf("attn_version is not there, or a private name is\n");
        return 1;
    }
    printf("%s\n", version());
    return dlclose(library);
}
