/* Curves of a training as an SVG picture. */
#ifndef KN_CURVES_H
#define KN_CURVES_H

#include <knet/train.h>

#include "text.h"

/* Adds the picture: losses above, the accuracy below where there is one, over the epochs. Comments
 * in it hold their numbers. */
void kn__curves_svg(kn__text *out, const char *title, const kn_epoch epochs[], int64_t n);
/* Adds the comment of an epoch, which may also follow a picture that does not show it yet. */
void kn__curves_note(kn__text *out, const kn_epoch *epoch);
/* Reads the epochs before `before` of such a picture: *out is malloc'd; returns their number, 0
 * where there is no such file. */
int64_t kn__curves_read(kn_epoch **out, const char *path, int64_t before);

#endif
