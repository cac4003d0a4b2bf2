/* Memory of training by role, at the high-water mark. */
#ifndef KN_REPORT_ROLES_H
#define KN_REPORT_ROLES_H

#include "report.h"
#include "text.h"

/* A scope's path says what its blocks are: the scopes "weights", "gradients" and "optimizer state"
 * are opened by the libraries where they allocate these, "load", "read data" and "make data" by
 * loaders, "work space" around memory for the time of one call; what else "backward" allocates are
 * gradients of values, and the rest are activations. */
typedef enum kn__role {
    KN__ROLE_WEIGHTS,
    KN__ROLE_GRADIENTS,
    KN__ROLE_OPTIMIZER,
    KN__ROLE_DATA,
    KN__ROLE_BACKWARD, /* from here on by layer too */
    KN__ROLE_WORK,
    KN__ROLE_ACTIVATIONS,
    KN__ROLES
} kn__role;

kn__role kn__role_of(const kn__row *row);
/* The layer of the row, as "block1.conv2": the scopes between the innermost pass that has such
 * scopes and the op. "" if it is in
 * none. */
void kn__role_layer(char *out, size_t out_bytes, const kn__row *row);

/* Adds a table of `width` columns (0: any): bytes of each role and the layers that hold most of
 * them, which with "no scope" add up to the peak; nothing for a program that trains nothing. With a
 * limit, and a batch in the run's notes, about what batch would fit: some less than live bytes
 * alone allow, as pools reserve more. */
void kn__roles_add(kn__text *text, const kn__report *report, uint64_t limit_bytes, int width);
/* What a report lacks for that, as "batch size"; NULL: nothing. */
const char *kn__fit_lacks(const kn__report *report);

#endif
