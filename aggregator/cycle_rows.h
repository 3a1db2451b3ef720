/*
 * cycle_rows.h - one rank's rows as one cycle: own time apart from the time blocked in collectives,
 * and the work after the last collective apart from that before it. Internal to cycles.c. Runs in
 * the reading commands.
 */
#ifndef LAGGARD_AGGREGATOR_CYCLE_ROWS_H
#define LAGGARD_AGGREGATOR_CYCLE_ROWS_H

#include "aggregator/cycles.h"

/* One row: own time and time blocked in collectives, per stage. */
struct lg_own_row {
    int64_t own[LG_STAGE_COUNT], sync[LG_STAGE_COUNT];
};

/* The columns of one clock of one rank; NULL: not loaded, or there is no such column. */
struct lg_cycle_view {
    const int64_t *dur, *compute;
    const int64_t *stage[LG_STAGE_COUNT]; /* other: NULL, it is what the rest leaves */
    const int64_t *sync[LG_STAGE_COUNT];
    const int64_t *after[LG_STAGE_COUNT]; /* backward, optimizer, other */
    bool merge;                           /* forward is to stand for forward and backward */
    size_t read;             /* a cycle's last row is the next one's previous: which was read... */
    bool has_read, measured; /* ...if any, and whether it was measured */
    struct lg_own_row row;
};

/* Returns true if forward and backward could not be told apart in some row. */
bool lg_cycle_view_of(const struct lg_rank *rank, bool device, struct lg_cycle_view *view);

bool lg_cycle_row_measured(const struct lg_cycle_view *view, size_t row);
/* The row will be read soon. */
void lg_cycle_prefetch(const struct lg_cycle_view *view, size_t row);

/* The cycle from the last sync of row `previous` to that of row `last`; rows between them (local
 * steps, steps that other ranks don't have) belong to it as a whole. False: not measured. */
bool lg_cycle_read(struct lg_cycle_view *view, size_t previous, size_t last,
                   struct lg_cycle_row *cycle);

/* No time is negative or longer than 19 hours: such a value is damage. Keeps sums in range. */
static inline int64_t lg_cycle_sane(int64_t ns)
{
    const int64_t most = INT64_C(1) << 46;

    return ns < 0 ? 0 : ns > most ? most : ns;
}

#endif
