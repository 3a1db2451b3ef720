/*
 * test_load.c - a run directory comes into memory as it is: values, NULL, attempts, ends, losses;
 * and what can't be read is said.
 */
#include "run_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/load.h"
#include "aggregator/process.h"

static struct lg_run *load(void)
{
    struct error error = {""};
    struct lg_run *run = load_run(dir, &error);
    if (!run)
        fail_msg("%s", error.text);
    return run;
}

static void refuse(const char *path, const char *words)
{
    struct error error = {""};
    struct lg_run *run = load_run(path, &error);
    assert_null(run);
    if (!strstr(error.text, words))
        fail_msg("'%s' is not in '%s'", words, error.text);
}

static void test_values(void **state)
{
    struct rank_info info = rank_info_of(3, 0);
    (void)state;
    simple_rank(0, 0, 5);
    info.seen = LG_SEEN_CUDA | LG_SEEN_FSDP;
    info.world_size = 8;
    strcpy(info.host, "node1");
    struct rankdb *db = make_rank(&info);
    put_steps(db, 4, 1, 1);
    close_rank(db);

    struct lg_run *run = load();
    assert_int_equal(run->n_ranks, 2);
    assert_int_equal(run->world, 8);
    assert_string_equal(run->strategy, "fsdp");
    assert_false(run->running);
    assert_false(run->imported);
    const struct lg_rank *rank = lg_run_find(run, 0);
    assert_int_equal(rank->n, 5);
    assert_int_equal(rank->step[4], 4);
    assert_int_equal(lg_rank_value(rank, LG_COL_input_wait_ns, 4), 0);
    assert_int_equal(lg_rank_value(rank, LG_COL_other_ns, 4), 4 * MS);
    /* not measured is not 0, and costs no memory */
    assert_true(lg_rank_value(rank, LG_COL_h2d_ns, 4) == LG_NULL);
    assert_null(rank->value[LG_COL_h2d_ns]);
    assert_null(rank->value[LG_COL_gpu_dur_ns]);
    assert_false(rank->has_device);
    rank = lg_run_find(run, 3);
    assert_int_equal(lg_rank_value(rank, LG_COL_gpu_dur_ns, 0), 9 * MS);
    assert_true(rank->has_device);
    assert_string_equal(rank->host, "node1");
    assert_int_equal(rank->end, LG_RANK_END_UNKNOWN);
    lg_run_free(run);
}

static void test_attempts(void **state)
{
    (void)state;
    simple_rank(1, 0, 9);
    simple_rank(1, 1, 7);
    simple_rank(1, 10, 3);
    simple_rank(0, 0, 9);
    struct lg_run *run = load();
    assert_int_equal(run->n_ranks, 2);
    assert_int_equal(lg_run_find(run, 1)->n, 3);
    assert_int_equal(lg_run_find(run, 1)->attempts, 3);
    assert_int_equal(lg_run_find(run, 0)->attempts, 1);
    lg_run_free(run);
}

static void test_ends(void **state)
{
    struct process_id self;
    (void)state;
    process_self(&self);
    for (int64_t rank = 0; rank < 4; rank++) {
        struct rank_info info = rank_info_of(rank, 0);
        info.ended = rank == 1;
        info.exit_status = rank == 1 ? 3 : LG_NULL;
        info.killed = rank == 2 ? 1 : LG_NULL;
        if (rank == 3) {
            info.pid = self.pid;
            info.proc_start = (int64_t)self.start;
            strcpy(info.boot_id, self.boot_id);
        }
        struct rankdb *db = make_rank(&info);
        put_steps(db, 6, 1, 0);
        close_rank(db);
    }
    struct lg_run *run = load();
    assert_int_equal(lg_run_find(run, 0)->end, LG_RANK_END_UNKNOWN);
    assert_int_equal(lg_run_find(run, 1)->end, LG_RANK_END_EXIT);
    assert_int_equal(lg_run_find(run, 1)->exit_status, 3);
    assert_int_equal(lg_run_find(run, 2)->end, LG_RANK_END_KILLED);
    assert_int_equal(lg_run_find(run, 3)->end, LG_RANK_END_RUNNING);
    assert_true(run->running);
    assert_int_equal(run->n_losses, 1);
    assert_int_equal(run->losses[0].rank, 2);
    assert_int_equal(run->losses[0].step, 5);
    assert_string_equal(run->losses[0].text, "ends at step 5 (killed)");
    lg_run_free(run);
}

static void test_losses(void **state)
{
    struct rank_info info = rank_info_of(2, 0);
    struct rank_loss stopped = {"no_space", 37, 12, "recording stopped here"};
    struct rank_loss damaged = {"damaged", -1, LG_NULL, "a spool can't be read"};
    struct error error;
    (void)state;
    simple_rank(0, 0, 50);
    struct rankdb *db = make_rank(&info);
    put_steps(db, 37, 1, 0);
    assert_int_equal(rankdb_put_loss(db, &stopped, &error), 0);
    assert_int_equal(rankdb_put_loss(db, &damaged, &error), 0);
    close_rank(db);
    struct lg_run *run = load();
    assert_int_equal(run->n_losses, 2);
    const struct lg_loss_entry *stop = &run->losses[run->losses[0].reason != LG_LOSS_no_space];
    assert_int_equal(stop->reason, LG_LOSS_no_space);
    assert_string_equal(stop->text,
                        "recording stopped at step 37 (no space for the spool), 12 rows "
                        "lost");
    assert_int_equal(lg_run_find(run, 2)->stop_step, 37);
    assert_int_equal(lg_run_find(run, 2)->rows_lost, 12);
    const struct lg_loss_entry *other = stop == run->losses ? &run->losses[1] : run->losses;
    assert_int_equal(other->reason, LG_LOSS_damaged);
    assert_true(other->step == LG_NULL && other->rows == LG_NULL);
    assert_non_null(strstr(other->text, "a spool can't be read"));
    lg_run_free(run);
}

static void test_damage(void **state)
{
    (void)state;
    for (int64_t rank = 0; rank < 3; rank++)
        simple_rank(rank, 0, 20);
    spoil("rank-00001.sqlite");
    struct lg_run *run = load();
    assert_int_equal(run->n_ranks, 3);
    assert_int_equal(lg_run_find(run, 1)->n, 0);
    assert_int_equal(lg_run_find(run, 2)->n, 20);
    assert_int_equal(run->n_losses, 1);
    assert_int_equal(run->losses[0].reason, LG_LOSS_damaged);
    assert_non_null(strstr(run->losses[0].text, "rank-00001.sqlite"));
    /* it was there: it has to be missed */
    assert_int_equal(run->n_expected, 3);
    lg_run_free(run);
    spoil("rank-00000.sqlite");
    spoil("rank-00002.sqlite");
    refuse(dir, "none of its 3 rank databases can be read");
}

static void test_many(void **state)
{
    (void)state;
    for (int64_t rank = 0; rank < 40; rank++)
        simple_rank(rank, 0, 10 + rank);
    struct lg_run *run = load();
    assert_int_equal(run->n_ranks, 40);
    for (int64_t rank = 0; rank < 40; rank++) {
        assert_int_equal(run->ranks[rank].rank, rank);
        assert_int_equal(run->ranks[rank].n, 10 + rank);
        assert_int_equal(lg_rank_value(&run->ranks[rank], LG_COL_input_wait_ns, 9), rank * MS);
    }
    lg_run_free(run);
}

static void test_refused(void **state)
{
    char path[PATH_MAX];
    (void)state;
    refuse(dir, "not a run");
    refuse("/dev/null", "not a run");
    snprintf(path, sizeof(path), "%s/nix", dir);
    refuse(path, "no such run");
    spoil("text");
    snprintf(path, sizeof(path), "%s/text", dir);
    refuse(path, "text: ");
}

static void test_single_database(void **state)
{
    char path[PATH_MAX];
    struct error error = {""};
    struct rank_info info = rank_info_of(5, 0);
    (void)state;
    info.world_size = 8;
    struct rankdb *db = make_rank(&info);
    put_steps(db, 6, 1, 0);
    close_rank(db);
    assert_int_equal(rankdb_path(path, sizeof(path), dir, 5, 0), 0);
    struct lg_run *run = load_run(path, &error);
    assert_non_null(run);
    assert_int_equal(run->n_ranks, 1);
    assert_int_equal(run->ranks[0].n, 6);
    assert_int_equal(run->world, -1);
    assert_int_equal(run->n_expected, 1);
    assert_int_equal(run->expected[0], 5);
    lg_run_free(run);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TEST(test_values), TEST(test_attempts), TEST(test_ends),    TEST(test_losses),
        TEST(test_damage), TEST(test_many),     TEST(test_refused), TEST(test_single_database),
    };
    return unit_run(tests);
}
