/*
 * resolve.c - finds the real functions behind the hooks by walking the loaded objects ourselves.
 * Context: constructor (libc), PyTorch's registration of its engine, and the first call of a hook
 * whose pointer is still empty (CUDA, NCCL).
 *
 * RATIONALE: no dlsym, dlopen or dlerror. They allocate, they look at their caller's address, and
 * they do not see libraries that Python loaded with RTLD_LOCAL. dl_iterate_phdr sees every object,
 * in load order; the first one after ours that defines the name is the function that would have run
 * without us.
 */
#include "preload/hooks.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#include "preload/boot.h"

struct lg_real real;

struct row {
    const char *symbol;
    uint16_t place;  /* of its pointer in `real`, counted in pointers */
    uint8_t version; /* 1 + enum lg_cudart that the definition must be of; 0: the default */
    uint8_t area;
    bool required;
};

enum { REQUIRED = 1, OPTIONAL = 0 };

static const struct row rows[] = {
#define ROW_PLAIN(area, need, id, symbol)                                                          \
    {symbol, offsetof(struct lg_real, id) / sizeof(void *), 0, LG_AREA_##area, need == REQUIRED},
#define ROW_OF(n, node, at, area, need, id, symbol)                                                \
    {symbol, offsetof(struct lg_real, id[LG_CUDART_##n]) / sizeof(void *), 1 + LG_CUDART_##n,      \
     LG_AREA_##area, need == REQUIRED},
#define ROW_CUDA(area, need, id, symbol) LG_CUDARTS(ROW_OF, area, need, id, symbol)
#define CALL(area, need, id, symbol, ret, params)                                                  \
    LG_PICK_##area(ROW_PLAIN, ROW_CUDA, area, need, id, symbol)
#define HOOK(area, need, id, symbol, ret, params) CALL(area, need, id, symbol, ret, params)
#include "preload/hooks.def"
#undef CALL
#undef HOOK
};
static_assert(sizeof rows / sizeof rows[0] == LG_HOOKS, "a row for each number");

#define NODE(n, node, at, unused) node,
static const char nodes[][20] = {LG_CUDARTS(NODE, 0)};

static void **pointer_of(const struct row *r)
{
    return (void **)(void *)&real + r->place;
}

/* What a loaded object's dynamic section says about its symbols. */
struct symbols {
    ElfW(Addr) base;
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const uint16_t *versions;
    const ElfW(Verdef) * definitions; /* of versions */
};

/* glibc relocates the pointers of a dynamic section in place, musl (and the vdso) doesn't. */
static const void *dynamic_pointer(const struct symbols *s, ElfW(Addr) p)
{
    return (const void *)(p < s->base ? p + s->base : p);
}

static bool read_dynamic(struct symbols *s, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *d = NULL;
    memset(s, 0, sizeof *s);
    s->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (d == NULL)
        return false;
    for (; d->d_tag != DT_NULL; d++) {
        const void *p = dynamic_pointer(s, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            s->table = p;
        else if (d->d_tag == DT_STRTAB)
            s->names = p;
        else if (d->d_tag == DT_GNU_HASH)
            s->gnu_hash = p;
        else if (d->d_tag == DT_HASH)
            s->sysv_hash = p;
        else if (d->d_tag == DT_VERSYM)
            s->versions = p;
        else if (d->d_tag == DT_VERDEF)
            s->definitions = p;
    }
    return s->table != NULL && s->names != NULL && (s->gnu_hash != NULL || s->sysv_hash != NULL);
}

static const char *version_name(const struct symbols *s, unsigned number)
{
    const ElfW(Verdef) *d = s->definitions;
    while (d != NULL && d->vd_ndx != number)
        d = d->vd_next != 0 ? (const void *)((const char *)d + d->vd_next) : NULL;
    if (d == NULL)
        return "";
    const ElfW(Verdaux) *a = (const void *)((const char *)d + d->vd_aux);
    return s->names + a->vda_name;
}

/* Versions 0 and 1 are none. Without a wish: what a new program would be linked to, not an old
 * version. */
static bool right_version(const struct symbols *s, uint32_t i, const char *node)
{
    unsigned version = s->versions != NULL ? s->versions[i] : 1;
    if (node == NULL)
        return (version & 0x8000) == 0;
    version &= 0x7fff;
    return version <= 1 || strcmp(version_name(s, version), node) == 0;
}

/* A definition of a function, of the version that is wanted. */
static bool usable(const struct symbols *s, uint32_t i, const char *name, const char *node)
{
    const ElfW(Sym) *sym = &s->table[i];
    unsigned type = ELF64_ST_TYPE(sym->st_info);
    if (sym->st_shndx == SHN_UNDEF || sym->st_value == 0)
        return false;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
        return false;
    return strcmp(s->names + sym->st_name, name) == 0 && right_version(s, i, node);
}

/* ISO C knows no way from an object pointer to a function pointer; ELF does. */
static lg_function as_function(void *p)
{
    union {
        void *object;
        lg_function function;
    } u = {p};
    return u.function;
}

static void *address_of(const struct symbols *s, uint32_t i)
{
    const ElfW(Sym) *sym = &s->table[i];
    void *p = (void *)(s->base + sym->st_value);
    if (ELF64_ST_TYPE(sym->st_info) == STT_GNU_IFUNC)
        p = ((void *(*)(void))as_function(p))();
    return p;
}

static void *find_gnu(const struct symbols *s, const char *name, const char *node)
{
    uint32_t h = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c != 0; c++)
        h = h * 33 + *c;
    const uint32_t nbuckets = s->gnu_hash[0], offset = s->gnu_hash[1], words = s->gnu_hash[2];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)&s->gnu_hash[4];
    const uint32_t *buckets = (const uint32_t *)&bloom[words], *chain = &buckets[nbuckets];
    const unsigned bits = sizeof(ElfW(Addr)) * 8;
    ElfW(Addr) word = bloom[(h / bits) % words];
    ElfW(Addr) mask = (ElfW(Addr))1 << (h % bits) | (ElfW(Addr))1 << ((h >> s->gnu_hash[3]) % bits);
    if (nbuckets == 0 || (word & mask) != mask)
        return NULL;
    for (uint32_t i = buckets[h % nbuckets]; i >= offset && i != 0; i++) {
        uint32_t entry = chain[i - offset];
        if ((entry | 1) == (h | 1) && usable(s, i, name, node))
            return address_of(s, i);
        if ((entry & 1) != 0)
            break;
    }
    return NULL;
}

static void *find_sysv(const struct symbols *s, const char *name, const char *node)
{
    uint32_t h = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c != 0; c++) {
        h = (h << 4) + *c;
        h ^= (h >> 24) & 0xf0;
        h &= 0x0fffffff;
    }
    const uint32_t nbuckets = s->sysv_hash[0];
    const uint32_t *buckets = &s->sysv_hash[2], *chain = &buckets[nbuckets];
    for (uint32_t i = nbuckets != 0 ? buckets[h % nbuckets] : 0; i != 0; i = chain[i])
        if (usable(s, i, name, node))
            return address_of(s, i);
    return NULL;
}

struct walk {
    const struct row *first, *last;
    enum lg_area area;
    bool any_version;
    bool after_us;
};

static bool contains(const struct dl_phdr_info *info, const void *p)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        ElfW(Addr) begin = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_LOAD && (ElfW(Addr))p >= begin && (ElfW(Addr))p < begin + h->p_memsz)
            return true;
    }
    return false;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    struct walk *w = data;
    struct symbols s;
    (void)size;
    if (!w->after_us) {
        w->after_us = contains(info, rows);
        return 0;
    }
    if (!read_dynamic(&s, info))
        return 0;
    for (const struct row *r = w->first; r < w->last; r++) {
        if (r->area != w->area || *pointer_of(r) != NULL)
            continue;
        const char *node = w->any_version || r->version == 0 ? NULL : nodes[r->version - 1];
        void *p =
            s.gnu_hash != NULL ? find_gnu(&s, r->symbol, node) : find_sysv(&s, r->symbol, node);
        if (p != NULL)
            __atomic_store_n(pointer_of(r), p, __ATOMIC_RELEASE);
    }
    return 0;
}

int lg_resolve_area(enum lg_area area)
{
    struct walk w = {.first = rows, .last = rows + LG_HOOKS, .area = area};
    int missing = 0;
    dl_iterate_phdr(visit, &w);
    for (const struct row *r = rows; r < rows + LG_HOOKS; r++)
        missing += r->area == area && r->required && *pointer_of(r) == NULL;
    return missing;
}

lg_function lg_resolve_late(enum lg_hook hook)
{
    const struct row *r = &rows[hook];
    struct walk w = {.first = r, .last = r + 1, .area = (enum lg_area)r->area};
    LG_KEEP_ERRNO;
    dl_iterate_phdr(visit, &w);
    /* a caller that was linked to no version takes any */
    if (*pointer_of(r) == NULL && r->version == 1 + LG_CUDART_DEFAULT) {
        w.after_us = false;
        w.any_version = true;
        dl_iterate_phdr(visit, &w);
    }
    return as_function(*pointer_of(r));
}

/* ---- all that define a function */

struct each {
    const char *symbol;
    lg_found *found;
    void *context;
    bool after_us;
};

static void *find(const struct symbols *s, const char *symbol)
{
    return s->gnu_hash != NULL ? find_gnu(s, symbol, NULL) : find_sysv(s, symbol, NULL);
}

static int visit_each(struct dl_phdr_info *info, size_t size, void *data)
{
    struct each *e = data;
    struct symbols s;
    void *p;
    (void)size;
    if (!e->after_us)
        e->after_us = contains(info, rows);
    else if (read_dynamic(&s, info) && (p = find(&s, e->symbol)) != NULL)
        e->found(e->context, as_function(p), info->dlpi_name);
    return 0;
}

void lg_resolve_each(enum lg_hook hook, lg_found *found, void *context)
{
    struct each e = {rows[hook].symbol, found, context, false};
    LG_KEEP_ERRNO;
    dl_iterate_phdr(visit_each, &e);
}

/* ---- what is loaded */

static const char *base_name(const char *path)
{
    const char *base = path;
    for (const char *c = path; c != NULL && *c != 0; c++)
        if (*c == '/')
            base = c + 1;
    return base;
}

struct named {
    const char *name;
    unsigned count;
};

static int visit_name(struct dl_phdr_info *info, size_t size, void *data)
{
    const char *base = base_name(info->dlpi_name);
    struct named *n = data;
    (void)size;
    n->count += base != NULL && strncmp(base, n->name, strlen(n->name)) == 0;
    return 0;
}

unsigned lg_objects_loaded(const char *name)
{
    struct named n = {name, 0};
    dl_iterate_phdr(visit_name, &n);
    return n.count;
}

/* ---- several objects that define a function */

enum { DEFINERS = 8, NEEDED = 64 };

/* RATIONALE: what the loader does is not to be had: which objects were loaded RTLD_GLOBAL is known
 * to nobody else. So a caller gets, in this order, what its own object defines, what an object
 * defines that it names as needed, and the first definition. */
struct search {
    const char *symbol;
    const void *caller;
    bool after_us;
    unsigned definers;
    struct {
        ElfW(Addr) base;
        void *function;
        const char *file;
    } definer[DEFINERS];
    bool found;
    ElfW(Addr) caller_base;
    unsigned needed;
    const char *needs[NEEDED];
};

static void note_needed(struct search *f, const struct dl_phdr_info *info, const char *names)
{
    const ElfW(Dyn) *d = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; d != NULL && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && f->needed < NEEDED)
            f->needs[f->needed++] = names + d->d_un.d_val;
}

static int visit_all(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *f = data;
    struct symbols s;
    (void)size;
    if (contains(info, rows)) {
        f->after_us = true;
        return 0;
    }
    if (!read_dynamic(&s, info))
        return 0;
    if (f->caller != NULL && contains(info, f->caller)) {
        f->found = true;
        f->caller_base = info->dlpi_addr;
        note_needed(f, info, s.names);
    }
    void *p = f->after_us ? find(&s, f->symbol) : NULL;
    if (p != NULL && f->definers < DEFINERS) {
        f->definer[f->definers].base = info->dlpi_addr;
        f->definer[f->definers].file = base_name(info->dlpi_name);
        f->definer[f->definers++].function = p;
    }
    return 0;
}

bool lg_resolve_several(enum lg_hook hook)
{
    struct search f = {.symbol = rows[hook].symbol};
    LG_KEEP_ERRNO;
    dl_iterate_phdr(visit_all, &f);
    return f.definers > 1;
}

static void *choose(const struct search *f)
{
    for (unsigned i = 0; i < f->definers && f->found; i++)
        if (f->definer[i].base == f->caller_base)
            return f->definer[i].function;
    for (unsigned n = 0; n < f->needed; n++)
        for (unsigned i = 0; i < f->definers; i++)
            if (f->definer[i].file != NULL && strcmp(f->needs[n], f->definer[i].file) == 0)
                return f->definer[i].function;
    return f->definers > 0 ? f->definer[0].function : NULL;
}

/* Answers found before: places of calls are few and stay. An entry is written once. */
static struct answer {
    _Atomic uint64_t key; /* caller and hook; 0: free */
    void *_Atomic function;
} answers[512];

static void remember(struct answer *a, uint64_t key, void *function)
{
    uint64_t none = 0;
    if (atomic_compare_exchange_strong(&a->key, &none, key))
        a->function = function;
}

lg_function lg_resolve_for(enum lg_hook hook, const void *caller)
{
    const uint64_t key = (uint64_t)(uintptr_t)caller << 10 | hook;
    struct answer *a = &answers[key * 0x9e3779b97f4a7c15u >> 55], *last = a + 8, *free = NULL;
    static_assert(LG_HOOKS < 1024, "a hook's number has ten bits");
    for (; a < last && a < answers + 512; a++) {
        if (a->key == key && a->function != NULL)
            return as_function(a->function);
        if (a->key == 0 && free == NULL)
            free = a;
    }
    struct search f = {.symbol = rows[hook].symbol, .caller = caller};
    LG_KEEP_ERRNO;
    dl_iterate_phdr(visit_all, &f);
    void *p = choose(&f);
    if (free != NULL)
        remember(free, key, p);
    return as_function(p);
}
