/* Where the machine code lies: in the library itself, see cubins.c. */
extern const char lib_cubins[];
