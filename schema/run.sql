-- run.sql: run.sqlite, what a run directory says about the run itself (aggregator/rundir.c).
--
-- keys: schema_version, laggard_version, run_id, command (quoted for a shell), argv (JSON array),
--       cwd, host, start_ns and end_ns (CLOCK_REALTIME), exit_status (128 + signal), signal (the one
--       that killed the command), interrupted (the last of SIGINT, SIGTERM and the like that reached laggard),
--       untraced (why the
--       command ran without the library), environment (names only, of a short list of variables that
--       matter to a training and are set: values may be secrets), and the recorder's identity:
--       recorder_boot_id, recorder_pid, recorder_start, spool_dir

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value
) WITHOUT ROWID;
