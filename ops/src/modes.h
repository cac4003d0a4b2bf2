/* Ways of computing that the environment sets for frames that leave them zero: KNET_FUSE and
 * KNET_RECOMPUTE, each 0, 1 or all. */
#ifndef KN_MODES_H
#define KN_MODES_H

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

#endif
