/* A program without the timer: the first plug-in brings it along. Its arguments are plug-ins, which
 * run one after the other; those after "global" are loaded with RTLD_GLOBAL. */
#include <dlfcn.h>
#include <string.h>

int main(int argc, char **argv) {
    int mode = RTLD_NOW;
    for (int i = 1; i < argc; i++) {
        void (*run)(void) = NULL;
        if (strcmp(argv[i], "global") == 0) {
            mode |= RTLD_GLOBAL;
            continue;
        }
        void *library = dlopen(argv[i], mode);
        if (library) *(void **)(void *)&run = dlsym(library, "plugin_run");
        if (!run) return 1;
        for (int k = 0; k < 3; k++) run();
        dlclose(library);
    }
    return 0;
}
