/* Names of kernels as people read them. */
#ifndef KN_REPORT_NAME_H
#define KN_REPORT_NAME_H

#include <stddef.h>

struct kn__row;

/* The qualified name in a mangled one, without template arguments and parameters:
 * "_ZN7cutlass6KernelI…EEvT_" gives "cutlass::Kernel", as does "void cutlass::Kernel<…>(…)". What
 * is not understood stays as it is. Cut to fit. */
void kn__name_short(char *out, size_t out_bytes, const char *name);

/* The names of one table. Those of several instances of a template keep the arguments that tell
 * them apart: "fill<int>" and "fill<float>". Zero-initialise; labels are borrowed. */
typedef struct kn__names {
    struct kn__shown_name *all;
    size_t n, size;
} kn__names;
void kn__names_add(kn__names *names, const char *label);
/* Those of the kernels among the row, the rows after it, and all below them. */
void kn__names_add_kernels(kn__names *names, const struct kn__row *row);
/* After the last name. */
void kn__names_settle(kn__names *names);
/* What to show for a name that was added; NULL: there was no memory. */
const char *kn__names_get(const kn__names *names, const char *label);
void kn__names_release(kn__names *names);

#endif
