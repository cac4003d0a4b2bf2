/* Curves of a training as an SVG picture. */
#ifndef KN_CURVES_H
#define KN_CURVES_H

#include <knet/train.h>

#include "text.h"

/* Adds the picture: losses above, the accuracy below where there is one, over the epochs. */
void kn__curves_svg(kn__text *out, const char *title, const kn_epoch epochs[], int64_t n);

#endif
