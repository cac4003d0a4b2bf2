/* Whole programs under the timer: what they return, print, and write as JSON. */
#ifndef KNET_TEST_OUTCOME_H
#define KNET_TEST_OUTCOME_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct outcome {
    int code, signal; /* code: -1 where a signal ended it; signal: 0 where it exited */
    char out[4096], err[65536];
    const cJSON *json; /* of run_gpu: NULL if none was written; valid until the next run */
} outcome;

/* Runs argv[0], with stdout and stderr kept. `prepare`, if not NULL, is called in the child before
 * the program. */
void run_child(outcome *o, const char *const *argv, void (*prepare)(const void *ctx),
               const void *ctx);
/* In a child: sets the variable, or unsets it where `value` is NULL. */
void set_variable(const char *name, const char *value);
/* In a child: AddressSanitizer looks for leaks in every child, and wants to be the first library.
 */
void relax_sanitizer(void);

/* The file's text, valid until the next call; NULL: there is none. */
const char *read_file(const char *path);
void copy_file(const char *to, const char *from);

int occurrences(const char *text, const char *what);
/* A line starts with the label, and the number of its calls is next. */
void assert_row(const char *table, const char *label, const char *n_calls);

double number(const cJSON *object, const char *key);
const cJSON *nth(const cJSON *object, const char *list, int i);
bool has_child(const cJSON *row, const char *label);
/* The row below `row` (a report, or a row of one) by its labels: "train/forward". */
const cJSON *row_at(const cJSON *row, const char *labels);

#endif
