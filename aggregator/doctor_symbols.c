/*
 * doctor_symbols.c - see doctor_symbols.h. Runs in `laggard doctor`; reads only, and believes no
 * offset in the file.
 */
#include "aggregator/doctor_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const unsigned char *bytes;
    uint64_t size;
};

static const void *at(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset ? image->bytes + offset : NULL;
}

static const Elf64_Shdr *section(const struct image *image, const Elf64_Ehdr *head, uint32_t number)
{
    return number < head->e_shnum
               ? at(image, head->e_shoff + (uint64_t)number * head->e_shentsize, sizeof(Elf64_Shdr))
               : NULL;
}

static const Elf64_Shdr *dynamic_symbols(const struct image *image, const Elf64_Ehdr *head)
{
    for (uint32_t i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = section(image, head, i);
        if (s && s->sh_type == SHT_DYNSYM)
            return s;
    }
    return NULL;
}

static int read_symbols(const struct image *image,
                        void (*fn)(void *context, const char *name, bool defined), void *context)
{
    const Elf64_Ehdr *head = at(image, 0, sizeof(*head));
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize < sizeof(Elf64_Shdr))
        return -1;
    const Elf64_Shdr *list = dynamic_symbols(image, head);
    const Elf64_Shdr *names = list ? section(image, head, list->sh_link) : NULL;
    const char *text = names ? at(image, names->sh_offset, names->sh_size) : NULL;
    const Elf64_Sym *symbol = list ? at(image, list->sh_offset, list->sh_size) : NULL;
    if (!text || !symbol || names->sh_size == 0 || text[names->sh_size - 1] != '\0')
        return -1;
    for (uint64_t i = 0; i < list->sh_size / sizeof(*symbol); i++)
        if (symbol[i].st_name > 0 && symbol[i].st_name < names->sh_size)
            fn(context, text + symbol[i].st_name, symbol[i].st_shndx != SHN_UNDEF);
    return 0;
}

int symbols_each(const char *path, void (*fn)(void *context, const char *name, bool defined),
                 void *context)
{
    struct image image = {NULL, 0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = -1;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        image.size = (uint64_t)st.st_size;
        void *bytes = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            image.bytes = bytes;
            rc = read_symbols(&image, fn, context);
            munmap(bytes, image.size);
        }
    }
    close(fd);
    return rc;
}
