/* One time step of some sequences of a recurrent layer, for its inner loops. Rows are sequences;
 * `gates` has those of one row after the other: LSTM i, f, g, o; GRU r, z, n. */
#ifndef KN_RNN_STEP_H
#define KN_RNN_STEP_H

#include <stdint.h>

typedef struct kn__rnn_step {
    int mode; /* kn_rnn_mode */
    int64_t rows, hidden;
    void *gates;           /* [rows,G·H]; forward: what the products made → the gates' values */
    const void *candidate; /* GRU [rows,H]: R_n·h + c_n */
    void *h, *c;           /* [rows,H]; forward: the states, changed in place. back: of before */
    void *y;               /* rows y_stride apart: h of the step */
    int64_t y_stride;
    void *cells; /* LSTM [rows,H]: c of the step; forward: NULL: not kept */
    /* back: */
    const void *dy; /* as y; NULL: zeros */
    int64_t dy_stride;
    /* [rows,H]: of the states after the step → of those before it, without what flows through R */
    void *dh, *dc;
    void *dgates; /* [rows,G·H], rows dgates_stride apart */
    int64_t dgates_stride;
    void *dcandidate; /* GRU [rows,H] */
    void *sums;       /* [G·H], GRU: and [H]: += the rows of dgates and of dcandidate */
} kn__rnn_step;

#endif
