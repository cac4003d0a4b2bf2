/* The readers of traces; the input stands at its beginning. */
#ifndef KN_REPLAY_FORMATS_H
#define KN_REPLAY_FORMATS_H

#include "input.h"
#include "replay.h"

kn_status kn__read_kntrace(kn__builder *b, kn__input *in);
kn_status kn__read_csv(kn__builder *b, kn__input *in);
kn_status kn__read_torch(kn__builder *b, kn__input *in);

#endif
