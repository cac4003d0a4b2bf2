/* Ways of computing that the environment sets: KNET_FUSE and KNET_RECOMPUTE for frames that leave
 * them zero, each 0 or off, 1 or on, or all; KNET_ISA; KNET_CONV_ROUTE. Another word is an error of
 * the first call of a thread. */
#ifndef KN_MODES_H
#define KN_MODES_H

#include <knet/status.h>

/* UNSET: as frames say. NEVER: in no frame. DEFAULT: also in frames that say nothing. ALL: by
 * default, and of every size (for tests). */
typedef enum kn__mode {
    KN__MODE_UNSET = 1,
    KN__MODE_NEVER,
    KN__MODE_DEFAULT,
    KN__MODE_ALL
} kn__mode;

kn__mode kn__mode_fuse(void);
kn__mode kn__mode_recompute(void);
/* The newest instruction set for inner loops: 2, 3 or 4; 0: not set; -1: another word. */
int kn__mode_isa(void);
/* The way that KNET_CONV_ROUTE names, a kn__conv_route; 0: not set. INVALID for another word. */
KN_MUST_CHECK kn_status kn__mode_conv_route(int *out);

/* INVALID for a word that is wrong. */
kn_status kn__modes_check(void);

#endif
