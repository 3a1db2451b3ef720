/*
 * infer.c - see infer.h. Context: hooks; rows only on the training thread.
 */
#include "preload/infer.h"

void lg_infer_wait_begin(void)
{
}

void lg_infer_wait_end(void)
{
}

void lg_infer_reset(void)
{
}

void lg_infer_finish(void)
{
}
