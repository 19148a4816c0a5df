/// Loads a library that uses NCCL for itself alone, as Python does; without an argument asks for NCCL's version.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        int (*version)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "ncclGetVersion");
        const char *(*words)(void *) = (const char *(*)(void *))dlsym(RTLD_DEFAULT, "ncclGetLastError");
        int number = 0;
        if (version == NULL || words == NULL)
            return 3;
        const int result = version(&number);
        printf("%d: %s\n", result, result == 0 ? "a version" : words(NULL));
        return 0;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 2;
    }
    int (*use)(void) = (int (*)(void))dlsym(library, "use_nccl");
    const int result = use == NULL ? 3 : use();
    printf("%s\n", result == 0 ? "right" : "wrong");
    return result;
}
