/*
 * doctor_program.c - looks at a command's files for `laggard doctor`: script or ELF, static,
 * foreign, privileged. Runs in that command; reads only.
 */
#include "aggregator/doctor_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_SCRIPTS 4 /* the kernel follows as many */

#if defined __x86_64__
#define OUR_MACHINE EM_X86_64
#elif defined __aarch64__
#define OUR_MACHINE EM_AARCH64
#else
#define OUR_MACHINE EM_NONE
#endif

/* --- finding it ---------------------------------------------------------------------------- */

static bool executable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* As execvp looks for it. */
static int look_up(const char *command, char path[PATH_MAX], struct error *error)
{
    const char *list = getenv("PATH");
    if (strchr(command, '/')) {
        if (snprintf(path, PATH_MAX, "%s", command) < PATH_MAX && executable(path))
            return 0;
        return error_set(error, "%s: %s", command,
                         access(command, F_OK) ? strerror(errno) : "not an executable file");
    }
    if (!list)
        list = "/usr/local/bin:/bin:/usr/bin";
    while (*list) {
        int length = (int)strcspn(list, ":");
        int n = snprintf(path, PATH_MAX, "%.*s%s%s", length, list, length ? "/" : "", command);
        if (n < PATH_MAX && executable(path))
            return 0;
        list += length + (list[length] == ':');
    }
    return error_set(error, "%s: not found in PATH", command);
}

/* The word after `#!`, or after env the first that is no option and no NAME=VALUE. */
static int interpreter(const char *line, char path[PATH_MAX], struct error *error)
{
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(line, "\n"), line);
    char *word = strtok_r(copy, " \t", &rest);
    if (!word)
        return error_set(error, "an empty #! line");
    const char *base = strrchr(word, '/');
    if (strcmp(base ? base + 1 : word, "env") != 0)
        return look_up(word, path, error);
    do {
        word = strtok_r(NULL, " \t", &rest);
    } while (word && (*word == '-' || strchr(word, '=')));
    return word ? look_up(word, path, error) : error_set(error, "#! env without a program");
}

/* --- ELF ----------------------------------------------------------------------------------- */

struct image {
    const unsigned char *bytes;
    size_t size;
};

static const void *at(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset ? image->bytes + offset : NULL;
}

static const Elf64_Phdr *find_segment(const struct image *image, uint32_t type)
{
    const Elf64_Ehdr *head = at(image, 0, sizeof(*head));
    for (unsigned i = 0; head && i < head->e_phnum; i++) {
        const Elf64_Phdr *p =
            at(image, head->e_phoff + (uint64_t)i * head->e_phentsize, sizeof(*p));
        if (p && p->p_type == type)
            return p;
    }
    return NULL;
}

/* Names of sanitizer runtimes stand in the dynamic string table; it is easier to find by content
 * than by address, and nothing else in a program is called so. */
static bool needs_sanitizer(const struct image *image)
{
    static const char *const names[] = {"libasan.so.", "libtsan.so.", "libclang_rt.asan"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (memmem(image->bytes, image->size, names[i], strlen(names[i])))
            return true;
    return false;
}

static void look_at_elf(const struct image *image, struct program *program)
{
    const Elf64_Ehdr *head = at(image, 0, sizeof(*head));
    if (!head || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != OUR_MACHINE) {
        program->foreign = true;
        return;
    }
    const Elf64_Phdr *loader = find_segment(image, PT_INTERP);
    const char *name = loader ? at(image, loader->p_offset, loader->p_filesz) : NULL;
    program->is_static = !loader;
    program->musl = name && memmem(name, loader->p_filesz, "ld-musl", 7);
    program->sanitizer = needs_sanitizer(image);
}

/* --- files --------------------------------------------------------------------------------- */

static int map_file(const char *path, struct image *image, struct error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        error_set(error, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    image->size = (size_t)st.st_size;
    void *bytes = image->size ? mmap(NULL, image->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return error_set(error, "%s: empty, or can't be read", path);
    image->bytes = bytes;
    return 0;
}

static bool is_privileged(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return false;
    bool other_user = (st.st_mode & S_ISUID) && st.st_uid != geteuid();
    bool other_group = (st.st_mode & S_ISGID) && st.st_gid != getegid();
    return other_user || other_group || getxattr(path, "security.capability", NULL, 0) > 0;
}

/* 1: it was a script, program->path is its interpreter now; 0: it was a program; -1: neither. */
static int look_at_file(struct program *program, struct error *error)
{
    struct image image = {NULL, 0};
    char line[512], path[PATH_MAX];
    if (map_file(program->path, &image, error))
        return -1;
    int rc = 0;
    const char *elf = at(&image, 0, 4), *script = at(&image, 0, 2);
    if (elf && memcmp(elf, "\177ELF", 4) == 0) {
        look_at_elf(&image, program);
    } else if (script && memcmp(script, "#!", 2) == 0) {
        size_t length = image.size - 2 < sizeof(line) - 1 ? image.size - 2 : sizeof(line) - 1;
        memcpy(line, image.bytes + 2, length);
        line[length] = '\0';
        rc = interpreter(line, path, error) ? -1 : 1;
    } else {
        rc = error_set(error, "%s: neither a program nor a script with a #! line", program->path);
    }
    munmap((void *)image.bytes, image.size);
    if (rc == 1) {
        if (!*program->script)
            snprintf(program->script, sizeof(program->script), "%s", program->path);
        snprintf(program->path, sizeof(program->path), "%s", path);
    }
    return rc;
}

int program_find(const char *command, struct program *program, struct error *error)
{
    memset(program, 0, sizeof(*program));
    if (look_up(command, program->path, error))
        return -1;
    for (int i = 0; i <= MAX_SCRIPTS; i++) {
        int rc = look_at_file(program, error);
        if (rc == 0)
            program->privileged = is_privileged(program->path);
        if (rc <= 0)
            return rc;
    }
    return error_set(error, "%s: its #! lines go in circles", command);
}
