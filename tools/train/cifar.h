/* CIFAR-10 and CIFAR-100 in their binary form (Krizhevsky 2009).
 *
 * Layout: records of one label (CIFAR-10) or a coarse and a fine one (CIFAR-100), a byte each, and
 * 3072 bytes of a 32x32 image: its red, green and blue planes, each row by row.
 */
#ifndef KN_CIFAR_H
#define KN_CIFAR_H

#include <stdbool.h>

#include "images.h"

/* Whether the folder has files of either kind. */
bool kn__cifar_is_there(const char *dir);
/* Reads a split whole. Labels of CIFAR-100 are the fine ones. Errors: IO, FORMAT, each naming the
 * file. */
kn_status kn__cifar_read(kn__images *out, const char *dir, kn_split split);

#endif
