/*
 * cupti.c - stand-in for libcupti that refuses everything, as on a machine where another profiler
 * holds it; torch.profiler then goes on without the device. Everything else that PyTorch imports is
 * generated. Context: loaded in place of the real library (which crashes on a stand-in driver), any
 * thread.
 */
#include <stdint.h>

#include "simcuda.h"

#define API __attribute__((visibility("default")))

int cuptiGetVersion(uint32_t *version);
int cuptiGetResultString(int result, const char **text);

API int cuptiGetVersion(uint32_t *version)
{
    SIM_ENTER();
    *version = 26;
    return 0;
}

API int cuptiGetResultString(int result, const char **text)
{
    SIM_ENTER();
    *text = result ? "not in the stand-in CUPTI" : "CUPTI_SUCCESS";
    return 0;
}
