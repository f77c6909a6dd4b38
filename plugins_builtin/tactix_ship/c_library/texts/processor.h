/* Whether this processor, and the system on it, have the instruction sets that the kernels were compiled for. */
#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t saved_registers(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

static int has(const feature *f) {
    unsigned found[4] = {0};
    if (!__get_cpuid_count(f->leaf, f->sub_leaf, found, found + 1, found + 2, found + 3))
        return 0;
    return (found[f->place] >> f->bit & 1) && (saved_registers() & f->saved) == f->saved;
}

/* Linux lets a process use AMX tiles that asks for them: ARCH_REQ_XCOMP_PERM, state 18
 * (Documentation/arch/x86/xstate). */
static int tiles_allowed(void) {
#if defined(__linux__)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return 0;
#endif
}

/* The first that is not there; NULL if none is missing. */
static const char *lacking_feature(void) {
    for (int i = 0; i < FEATURES; i++)
        if (!has(&features[i]))
            return features[i].name;
    return USES_TILES && !tiles_allowed() ? "permission for AMX tiles" : NULL;
}
#else
static const char *lacking_feature(void) {
    return NULL; /* every processor of this architecture has what the kernels use */
}
#endif
