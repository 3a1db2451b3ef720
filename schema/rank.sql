-- rank.sql: the tables of a rank database (rank-NNNNN.sqlite) and the views that people query.
--
-- One file holds one rank of one run; another attempt of that rank (a restart) has a file of its
-- own. aggregator/rankdb.c runs this text when it makes a file. It replaces the words that begin
-- with a dollar sign by lists made from schema/columns.def: HOST_COLUMNS, COMMON_COLUMNS and
-- GPU_COLUMNS are column definitions, STEP_COLUMNS is one expression per column, SYNC_SUM and
-- GPU_SYNC_SUM add up the parts that were measured.
--
-- Size matters more than looks in step_host and step_gpu; people and programs read the view `step`.
-- Not stored: the rank (table rank), other_ns (the rest of dur_ns), and what follows from others:
--   start_ns        NULL: the previous row's start_ns + dur_ns; -1: not measured. Always stored
--                   after a gap and in steps divisible by 64, so no look-up goes far back
--   X_before_ns     in place of X_after_ns: own time before the last sync, which is mostly 0
--   common          columns that hardly ever change are kept once for each combination of their
--                   values, in step_common
-- In the view NULL means "not measured"; 0 means "measured, nothing".

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;

-- one row: who wrote the rows, and how it ended
CREATE TABLE rank (
    rank            INTEGER PRIMARY KEY,
    world_size      INTEGER,          -- NULL: not known
    rank_source     TEXT,             -- communicator, env, ompi, pmi, slurm, unknown, imported
    local_rank      INTEGER,
    attempt         INTEGER NOT NULL, -- 0, 1, ...: the largest is the newest
    host            TEXT,
    pid             INTEGER,
    parent_pid      INTEGER,
    proc_start      INTEGER,          -- clock ticks since boot
    boot_id         TEXT,
    run_id          TEXT,
    seen            INTEGER,          -- bits: enum lg_seen in schema/spool.h
    torch_path      TEXT,
    nccl_version    TEXT,
    mono_ns         INTEGER,          -- one moment on CLOCK_MONOTONIC ...
    real_ns         INTEGER,          -- ... and on CLOCK_REALTIME
    steps_complete  INTEGER,          -- commits that the process reached
    ended           INTEGER,          -- 1: exit was reached
    exit_status     INTEGER,          -- NULL: not known
    killed          INTEGER,          -- 1: gone without reaching exit, 0: not, NULL: not known
    entries_dropped INTEGER           -- nesting entries repaired (jumps, exceptions)
);

CREATE TABLE step_host (
    step   INTEGER PRIMARY KEY,
    common INTEGER
    $HOST_COLUMNS
);

CREATE TABLE step_common (
    id INTEGER PRIMARY KEY
    $COMMON_COLUMNS
);

-- no row for a step: nothing was measured on a device
CREATE TABLE step_gpu (
    step INTEGER PRIMARY KEY
    $GPU_COLUMNS
);

-- forked loader workers of this rank
CREATE TABLE worker (
    pid        INTEGER NOT NULL,
    begin_ns   INTEGER NOT NULL,
    reads      INTEGER,
    read_bytes INTEGER,
    read_ns    INTEGER,
    ended      INTEGER,               -- 1: left in order, 0: its end was not seen
    PRIMARY KEY (pid, begin_ns)
) WITHOUT ROWID;

-- single collectives, where they are sampled
CREATE TABLE collective (
    id       INTEGER PRIMARY KEY,
    step     INTEGER,
    seq      INTEGER,                 -- number within its group
    comm     INTEGER,                 -- comm_group.id
    kind     TEXT,                    -- allreduce, allgather, ...
    bytes    INTEGER,
    enter_ns INTEGER,                 -- CLOCK_MONOTONIC of the rank's host
    dur_ns   INTEGER
);

-- checkpoints, stacks, markers
CREATE TABLE event (
    id      INTEGER PRIMARY KEY,
    step    INTEGER,
    time_ns INTEGER,                  -- CLOCK_MONOTONIC of the rank's host
    kind    TEXT,
    dur_ns  INTEGER,
    bytes   INTEGER,
    detail  TEXT
);

-- process groups and communicators that this rank is a member of. `laggard sql` and `laggard import`
-- call the column rank here group_rank: everywhere else rank is the number in the whole training.
CREATE TABLE comm_group (
    id    INTEGER PRIMARY KEY,        -- of this rank's own: the same group has another id elsewhere
    kind  TEXT,                       -- c10d, gloo, nccl
    rank  INTEGER,                    -- number within this group, from 0
    size  INTEGER,                    -- its members
    seq   INTEGER,                    -- collectives issued in it
    bytes INTEGER                     -- of those, as far as their size is known
);

-- what the process ran: the program, and each copy of NCCL that was there
CREATE TABLE library (
    id            INTEGER PRIMARY KEY,
    path          TEXT,               -- as it was loaded
    kind          TEXT,               -- program, nccl, static nccl (linked into that file)
    version       TEXT,
    communicators INTEGER             -- made in it through calls that were seen; NULL: none can be
);

-- what is missing, and why; reasons: LOSS() in schema/bits.def
CREATE TABLE loss (
    reason TEXT NOT NULL,
    step   INTEGER NOT NULL,          -- from which step on; -1: not known
    rows   INTEGER,                   -- NULL: not known
    detail TEXT,
    PRIMARY KEY (reason, step)
) WITHOUT ROWID;

-- all columns of a step, decoded
CREATE VIEW step AS
SELECT (SELECT rank FROM rank) AS rank,
       h.step AS step,
       $STEP_COLUMNS,
       h.dur_ns - h.input_wait_ns AS traced_ns,
       $SYNC_SUM AS sync_ns,
       g.gpu_dur_ns - g.gpu_input_wait_ns AS gpu_traced_ns,
       $GPU_SYNC_SUM AS gpu_sync_ns
  FROM step_host AS h
       LEFT JOIN step_common AS c ON c.id = h.common
       LEFT JOIN step_gpu AS g ON g.step = h.step;

-- the same for people: milliseconds
CREATE VIEW step_ms AS
SELECT rank, step,
       dur_ns / 1e6         AS dur_ms,
       input_wait_ns / 1e6  AS input_wait_ms,
       h2d_ns / 1e6         AS h2d_ms,
       forward_ns / 1e6     AS forward_ms,
       backward_ns / 1e6    AS backward_ms,
       compute_ns / 1e6     AS compute_ms,
       optimizer_ns / 1e6   AS optimizer_ms,
       other_ns / 1e6       AS other_ms,
       sync_ns / 1e6        AS sync_ms,
       device_wait_ns / 1e6 AS device_wait_ms,
       gpu_dur_ns / 1e6     AS gpu_dur_ms,
       gpu_sync_ns / 1e6    AS gpu_sync_ms,
       collective_seq, flags, sources
  FROM step;

-- one row: means over the rank's steps
CREATE VIEW rank_summary AS
SELECT (SELECT rank FROM rank) AS rank,
       (SELECT host FROM rank) AS host,
       (SELECT pid FROM rank)  AS pid,
       count(*)                AS steps,
       min(step)               AS first_step,
       max(step)               AS last_step,
       avg(dur_ms)             AS dur_ms,
       avg(input_wait_ms)      AS input_wait_ms,
       avg(h2d_ms)             AS h2d_ms,
       avg(forward_ms)         AS forward_ms,
       avg(backward_ms)        AS backward_ms,
       avg(compute_ms)         AS compute_ms,
       avg(optimizer_ms)       AS optimizer_ms,
       avg(other_ms)           AS other_ms,
       avg(sync_ms)            AS sync_ms,
       avg(device_wait_ms)     AS device_wait_ms,
       avg(gpu_dur_ms)         AS gpu_dur_ms,
       avg(gpu_sync_ms)        AS gpu_sync_ms
  FROM step_ms;

-- one row per stage: its part of the rank's time (NULL: the stage was not measured)
CREATE VIEW stage_share AS
WITH total AS (SELECT sum(dur_ns)        AS dur,
                      sum(input_wait_ns) AS input_wait,
                      sum(h2d_ns)        AS h2d,
                      sum(forward_ns)    AS forward,
                      sum(backward_ns)   AS backward,
                      sum(compute_ns)    AS compute,
                      sum(optimizer_ns)  AS optimizer,
                      sum(other_ns)      AS other,
                      sum(sync_ns)       AS sync
                 FROM step),
     stage(stage, ns) AS (SELECT 'input_wait', input_wait FROM total
                          UNION ALL SELECT 'h2d', h2d FROM total
                          UNION ALL SELECT 'forward', forward FROM total
                          UNION ALL SELECT 'backward', backward FROM total
                          UNION ALL SELECT 'compute', compute FROM total
                          UNION ALL SELECT 'optimizer', optimizer FROM total
                          UNION ALL SELECT 'other', other FROM total
                          UNION ALL SELECT 'of these: sync', sync FROM total)
SELECT (SELECT rank FROM rank) AS rank,
       stage,
       ns / 1e6 AS total_ms,
       1.0 * ns / (SELECT nullif(dur, 0) FROM total) AS share
  FROM stage;
