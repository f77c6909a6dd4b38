/* The @part@ of the library, as the assembler reads them from their file: @PART@_FILE is its path. */
#if defined(__APPLE__)
#define SYMBOL                                                                                                     \
    "_"                                                                                                            \
    "lib_@part@"
#define SECTION ".section __TEXT,__const"
#define HIDDEN ".private_extern " SYMBOL
#else
#define SYMBOL "lib_@part@"
#define SECTION ".section .rodata"
#define HIDDEN ".hidden " SYMBOL
#endif

__asm__(SECTION "\n"
                ".globl " SYMBOL "\n" HIDDEN "\n"
                ".balign 64\n" SYMBOL ":\n"
                ".incbin \"" @PART@_FILE "\"\n"
                ".balign 64\n"
                ".text\n");

typedef int lib_@part@_are_above; /* a unit of C has something in it */
