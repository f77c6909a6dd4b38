/* The weights, as the assembler reads them from their file: WEIGHTS_FILE is its path. */
#if defined(__APPLE__)
#define SYMBOL                                                                                                     \
    "_"                                                                                                            \
    "lib_weights"
#define SECTION ".section __TEXT,__const"
#define HIDDEN ".private_extern " SYMBOL
#else
#define SYMBOL "lib_weights"
#define SECTION ".section .rodata"
#define HIDDEN ".hidden " SYMBOL
#endif

__asm__(SECTION "\n"
                ".globl " SYMBOL "\n" HIDDEN "\n"
                ".balign 64\n" SYMBOL ":\n"
                ".incbin \"" WEIGHTS_FILE "\"\n"
                ".balign 64\n"
                ".text\n");

typedef int lib_weights_are_above; /* a unit of C has something in it */
