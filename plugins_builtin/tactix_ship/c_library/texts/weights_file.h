/* Where the weights lie: in a file, mapped once for all contexts, and compared with the size and sha256 of those
 * that the library was made with. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "sha256.h"

static struct {
    pthread_mutex_t lock;
    int users;
    int checked; /* whether the content was compared */
    char *memory;
} weights = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The path of the file beside the library, or beside the program that it is linked into. */
static int beside_library(char *path, size_t room) {
    Dl_info found;
    if (!dladdr(&tensors, &found) || !found.dli_fname)
        return 0;
    const char *end = strrchr(found.dli_fname, '/');
    const int folder = end ? (int)(end - found.dli_fname) + 1 : 0;
    return snprintf(path, room, "%.*s%s", folder, found.dli_fname, WEIGHTS_NAME) < (int)room;
}

/* Writes what is wrong, and returns NULL for it. */
__attribute__((format(printf, 3, 4))) static void *wrong(char *text, size_t room, const char *format, ...) {
    va_list more;
    va_start(more, format);
    vsnprintf(text, room, format, more);
    va_end(more);
    return NULL;
}

static char *mapped(const char *path, char *text, size_t room) {
    struct stat found;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return wrong(text, room, "the weights cannot be read: %s: %s. Say where they are in lib_options", path,
                     strerror(errno));
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size != WEIGHTS_BYTES) {
        close(file);
        return wrong(text, room, "%s is no file of %lld bytes, as the weights of this library are", path,
                     (long long)WEIGHTS_BYTES);
    }
    void *memory = mmap(NULL, WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    const int reason = errno;
    close(file);
    return memory != MAP_FAILED ? memory : wrong(text, room, "%s cannot be mapped: %s", path, strerror(reason));
}

static int is_whole(const char *memory, const char *path, char *text, size_t room) {
    uint8_t found[32];
    static const uint8_t wanted[32] = WEIGHTS_SHA256;
    sha256(memory, WEIGHTS_BYTES, found);
    if (!memcmp(found, wanted, sizeof wanted))
        return 1;
    wrong(
        text, room,
        "%s has other content than the weights of this library. Export again, or bring the file that came with it",
        path);
    return 0;
}

static const char *locked_weights(const char *path, int check, char *text, size_t room) {
    char beside[4096];
    if (!path && !beside_library(beside, sizeof beside))
        return wrong(text, room, "nothing tells where the library lies. Say where the weights are in lib_options");
    path = path ? path : beside;
    char *memory = weights.memory ? weights.memory : mapped(path, text, room);
    if (memory && check && !weights.checked) {
        if (!is_whole(memory, path, text, room)) {
            if (!weights.memory)
                munmap(memory, WEIGHTS_BYTES);
            return NULL;
        }
        weights.checked = 1;
    }
    weights.memory = memory;
    weights.users += memory != NULL;
    return memory;
}

/* The begin of the weights for one context more; NULL with a text where there are none. */
static const char *take_weights(const char *path, int check, char *text, size_t room) {
    pthread_mutex_lock(&weights.lock);
    const char *found = locked_weights(path, check, text, room);
    pthread_mutex_unlock(&weights.lock);
    return found;
}

/* For one context less; the last one unmaps them. */
static void release_weights(void) {
    pthread_mutex_lock(&weights.lock);
    if (--weights.users == 0) {
        munmap(weights.memory, WEIGHTS_BYTES);
        weights.memory = NULL;
        weights.checked = 0;
    }
    pthread_mutex_unlock(&weights.lock);
}
