/*
 * foreign32.c - the least program for a 32-bit C library, built without its headers: the loader
 * can't take a 64-bit library into it and says so; nothing else may change.
 */
extern long write(int fd, const void *buffer, unsigned long size);
extern _Noreturn void exit(int status);
_Noreturn void _start(void);

void _start(void)
{
    write(1, "32 bits\n", 8);
    exit(7);
}
