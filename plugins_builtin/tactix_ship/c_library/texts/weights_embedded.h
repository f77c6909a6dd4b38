/* Where the weights lie: in the library itself, see weights.c. */
extern const char lib_weights[];

static const char *take_weights(const char *path, int check, char *text, size_t room) {
    (void)path, (void)check, (void)text, (void)room;
    return lib_weights;
}

static void release_weights(void) {}
