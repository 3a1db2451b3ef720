/*
 * doctor.h - what the parts of `laggard doctor` share: a line of its answer. Runs in that command.
 */
#ifndef LAGGARD_AGGREGATOR_DOCTOR_H
#define LAGGARD_AGGREGATOR_DOCTOR_H

#include <stddef.h>

/* LIMIT: it works, but something is not observed; the line says what, and behind "->" what would
 * help. NOT_SET: there is nothing to say more about. */
enum doctor_answer { DOCTOR_OK, DOCTOR_LIMIT, DOCTOR_NOT_OK, DOCTOR_NOT_SET };

/* One line: the answer, a subject of at most 14 characters, and a printf-style text. */
void doctor_say(enum doctor_answer answer, const char *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Output of a shell command, cut at `size`; its exit status as of pclose. */
int doctor_output(const char *command, char *text, size_t size);

/* Says which PyTorch this Python would import, and whether what the library at `library` (NULL: not
 * there) stands for is exported by it. Nothing is imported. */
void doctor_torch(const char *python, const char *library);

/* Says which of the CUDA and NCCL functions that the library stands for this program calls. */
void doctor_calls(const char *program, const char *library);

#endif
