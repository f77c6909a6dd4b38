/* Runs any library that tactix export --c wrote: -DNAME=mlp -DHEADER='"mlp.h"' -DPLACES=MLP.
 *
 *     driver THREADS RUNS FOLDER
 *
 * Input i is FOLDER/in<i>: its rank and sizes as 64-bit integers, then its elements. Outputs go to FOLDER/out<i>.
 * Prints the nanoseconds from the begin of main to the first answer. As a shared object it has `repeat` for others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include HEADER

#define JOINED(a, b) a##_##b
#define JOIN(a, b) JOINED(a, b)
#define LIB(x) JOIN(NAME, x)
#define COUNT(x) JOIN(PLACES, x)

typedef LIB(context) context;

int repeat(context *c, int64_t times) {
    int failed = 0;
    for (int64_t i = 0; i < times; i++)
        failed |= (int)LIB(run)(c);
    return failed;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void check(const context *c, int status, const char *what) {
    if (status == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, LIB(last_error)(c));
    exit(1);
}

static void need(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static FILE *opened(const char *folder, const char *kind, size_t index, const char *how) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%zu", folder, kind, index);
    FILE *file = fopen(path, how);
    need(file != NULL, path);
    return file;
}

static void *give_input(context *c, size_t index, const char *folder) {
    int64_t rank = 0, dims[32];
    size_t bytes = 0;
    FILE *file = opened(folder, "in", index, "rb");
    need(fread(&rank, 8, 1, file) == 1 && rank <= 32, "no rank");
    need(fread(dims, 8, (size_t)rank, file) == (size_t)rank, "no sizes");
    check(c, (int)LIB(set_input_shape)(c, index, dims, (size_t)rank), "shape");
    check(c, (int)LIB(input_size)(c, index, &bytes), "size");
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    need(memory && fread(memory, 1, bytes, file) == bytes, "no elements");
    fclose(file);
    check(c, (int)LIB(bind_input)(c, index, memory, bytes), "input");
    return memory;
}

static void *give_output(context *c, size_t index) {
    size_t bytes = 0;
    check(c, (int)LIB(output_size)(c, index, &bytes), "output");
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    need(memory != NULL, "no memory");
    check(c, (int)LIB(bind_output)(c, index, memory, bytes), "output");
    return memory;
}

int main(int argc, char **argv) {
    const int64_t begin = now();
    context *c = NULL;
    void *memory[COUNT(INPUTS) + COUNT(OUTPUTS)];
    need(argc == 4, "usage: driver THREADS RUNS FOLDER");
    const LIB(options) options = {.threads = atoi(argv[1])};
    check(NULL, (int)LIB(create)(&options, &c), "create");
    for (size_t i = 0; i < COUNT(INPUTS); i++)
        memory[i] = give_input(c, i, argv[3]);
    for (size_t i = 0; i < COUNT(OUTPUTS); i++)
        memory[COUNT(INPUTS) + i] = give_output(c, i);
    check(c, (int)LIB(run)(c), "run");
    printf("%lld\n", (long long)(now() - begin));
    check(c, repeat(c, atoll(argv[2]) - 1), "run");
    for (size_t i = 0; i < COUNT(OUTPUTS); i++) {
        size_t bytes = 0;
        check(c, (int)LIB(output_size)(c, i, &bytes), "output");
        FILE *file = opened(argv[3], "out", i, "wb");
        need(fwrite(memory[COUNT(INPUTS) + i], 1, bytes, file) == bytes, "output");
        fclose(file);
    }
    LIB(destroy)(c);
    for (size_t i = 0; i < COUNT(INPUTS) + COUNT(OUTPUTS); i++)
        free(memory[i]);
    return 0;
}
