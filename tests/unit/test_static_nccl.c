/*
 * test_static_nccl.c - finding NCCL inside a file: where the text lies, what only looks like it,
 * and which file is looked at. Context: unit test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/static_nccl.h"

static char file[] = "/tmp/laggard-nccl-XXXXXX";

/* `text` at `offset` of a file of zeros that goes on for a while. */
static int found(const char *text, long offset, char version[40])
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    fputs(text, f);
    assert_int_equal(fseek(f, 5000, SEEK_CUR), 0);
    fputc(0, f);
    fclose(f);
    *version = '\0';
    return nccl_inside(file, version, 40);
}

static void finds_it_anywhere(void **state)
{
    static const long places[] = {0,
                                  77,
                                  (1 << 20) - 70,
                                  (1 << 20) - 20,
                                  (1 << 20) - 3,
                                  (1 << 20),
                                  (3 << 20) - 14,
                                  (3 << 20) + 50};
    char version[40];
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        assert_true(found("NCCL version 2.28.3+cuda13.0", places[i], version));
        assert_string_equal(version, "2.28.3");
    }
    assert_true(found("NCCL version 2.19.3-rc1+cuda12.2", 5, version));
    assert_string_equal(version, "2.19.3");
}

static void other_sentences(void **state)
{
    static const char *const texts[] = {
        "NCCL version %d.%d.%d+cuda%d", "NCCL version 2.4 or later is needed",
        "NCCL version 2.32.3 compiled with CUDA 12.9", "NCCL version +cuda12", "NCCL version "};
    char version[40];
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(found(texts[i], 100, version));
    assert_true(found("NCCL version mismatch, NCCL version 2.9.8+cuda11.0", 1, version));
    assert_string_equal(version, "2.9.8");
    assert_false(nccl_inside("/nowhere", version, 40));
}

static void which_file(void **state)
{
    struct rank_info info = {.seen = 0};
    char path[464];
    (void)state;
    nccl_may_be_inside(&info, "/bin/train", path, sizeof(path));
    assert_string_equal(path, "/bin/train");
    snprintf(info.torch_path, sizeof(info.torch_path), "/x/torch/lib/libtorch_cpu.so");
    info.seen = LG_SEEN_TORCH;
    nccl_may_be_inside(&info, "/bin/python3", path, sizeof(path));
    assert_string_equal(path, "");
    info.seen |= LG_SEEN_CUDA;
    nccl_may_be_inside(&info, "/bin/python3", path, sizeof(path));
    assert_string_equal(path, "/x/torch/lib/libtorch_cuda.so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_it_anywhere),
        cmocka_unit_test(other_sentences),
        cmocka_unit_test(which_file),
    };
    int fd = mkstemp(file);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed;
}
