/* usage: reload LIBRARY MODEL.onnx
 *
 * What a program with plug-ins does with Tilewright: opens the library, closes it, and opens it again; without using it
 * in between, and with a model compiled and run each time. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tilewright/tilewright.h>

/* The address of a function, which ISO C does not make of a void*. */
static void find(void* library, const char* name, void* function) {
    *(void**)function = dlsym(library, name);
    if (*(void**)function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

static int use(void* library, const char* path) {
    tilewright_status (*compile)(const char*, const tilewright_options*, tilewright_model**, tilewright_error**);
    tilewright_status (*create)(const tilewright_model*, int32_t, tilewright_session**, tilewright_error**);
    void (*free_session)(tilewright_session*);
    void (*free_model)(tilewright_model*);
    tilewright_model* model = NULL;
    tilewright_session* session = NULL;
    find(library, "tilewright_compile_file", &compile);
    find(library, "tilewright_session_create", &create);
    find(library, "tilewright_session_free", &free_session);
    find(library, "tilewright_model_free", &free_model);
    if (compile(path, NULL, &model, NULL) != TILEWRIGHT_OK) return 1;
    if (create(model, 2, &session, NULL) != TILEWRIGHT_OK) return 1;
    free_session(session);
    free_model(model);
    return 0;
}

int main(int argc, char** argv) {
    int round, used;
    if (argc != 3) return 2;
    for (used = 0; used < 2; ++used)
        for (round = 0; round < 5; ++round) {
            void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            if (library == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
            if (used && use(library, argv[2]) != 0) return 1;
            if (dlclose(library) != 0) return 1;
        }
    return 0;
}
