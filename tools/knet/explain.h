/* The graph of a training step for `knet explain`: recorded kernel by kernel, grouped by the scopes
 * of the model, repeated groups drawn once.
 *
 * Vocabulary. An *event* is one kernel, or one pass over several ops, in one step. A *block* is a
 * scope of the model ("layer1/0"), or several that repeat each other; a *node* is all events of a
 * block that have the same name and phase. */
#ifndef KN_EXPLAIN_H
#define KN_EXPLAIN_H

#include "model_steps.h"
#include "text.h"

enum { KN__EXPLAIN_NAME = 100, KN__EXPLAIN_PATH = 192, KN__EXPLAIN_WHERE = 64 };

typedef enum kn__explain_phase {
    KN__EXPLAIN_FORWARD,
    KN__EXPLAIN_BACKWARD,
    KN__EXPLAIN_UPDATE,
    KN__EXPLAIN_PHASES
} kn__explain_phase;
extern const char *const kn__explain_phase_names[KN__EXPLAIN_PHASES];

typedef struct kn__explain_event {
    char name[KN__EXPLAIN_NAME];      /* "conv_act", "add+gelu+mul" */
    char path[KN__EXPLAIN_PATH];      /* of its scope in the model: "layer1/0/conv1"; "" outside */
    char scope[2 * KN__EXPLAIN_PATH]; /* the timer's: "train/backward/layer1/0/conv1/…" */
    char where[KN__EXPLAIN_WHERE];    /* "net.c:12"; "" unknown */
    kn__explain_phase phase;
    int n_ops;
    int first_in, n_in;              /* its inputs, in the run's list: the events that made them */
    uint64_t ns, flops, moved_bytes; /* the least time of all steps */
} kn__explain_event;

typedef struct kn__explain_run {
    kn__explain_event *event;
    int *input;
    int n_events, n_inputs;
    uint64_t step_ns, live_bytes_max; /* the least of all steps; the pool's most in a step */
    uint64_t plan_bytes;              /* of a captured step: memory that its plan placed; else 0 */
} kn__explain_run;

/* Runs warm-up and n_steps steps in a frame with .fuse = fuse. Turns the timer's scopes on. Of
 * captured steps (kn__model_steps_capture) all after the warm-up are replays. */
kn_status kn__explain_record(kn__explain_run *out, kn__model_steps *steps, int fuse, int n_steps);
void kn__explain_run_release(kn__explain_run *run);

typedef struct kn__explain_block {
    char path[2 * KN__EXPLAIN_PATH]; /* "layer1/1..2"; "input", "loss", "model": outside of all */
    int times;                       /* so many scopes */
} kn__explain_block;

typedef struct kn__explain_node {
    const kn__explain_event *event; /* the first one: name, phase, where */
    int block, n_events;
    uint64_t ns, flops, moved_bytes; /* of all of them */
} kn__explain_node;

typedef struct kn__explain_edge {
    int from, to; /* nodes; from is never to */
} kn__explain_edge;

typedef struct kn__explain_graph {
    kn__explain_block *block;
    kn__explain_node *node; /* by block, in a block by phase and first event */
    kn__explain_edge *edge;
    int n_blocks, n_nodes, n_edges;
    const kn__explain_run *run;
    uint64_t moved_bytes;
} kn__explain_graph;

/* At most about `most` blocks: deeper scopes count as the ones around them. */
kn_status kn__explain_group(kn__explain_graph *out, const kn__explain_run *run, int most);
void kn__explain_graph_release(kn__explain_graph *graph);

/* The drawing: the step before and after fusion, and captured where that is wanted. */
enum { KN__EXPLAIN_SIDES = 3 };
typedef struct kn__explain {
    const char *title;
    int n_sides;
    kn__explain_graph side[KN__EXPLAIN_SIDES];
} kn__explain;

void kn__explain_text(kn__text *out, const kn__explain *e);
void kn__explain_dot(kn__text *out, const kn__explain *e);
void kn__explain_svg(kn__text *out, const kn__explain *e);
void kn__explain_json(kn__text *out, const kn__explain *e);
/* "before: 35 kernels, 13.1 ms a step, 45.1 MiB moved, 20.4 MiB live at most"; of a captured step
 * also `joint` and "8.1 MiB in its plan" */
void kn__explain_summary(kn__text *out, const kn__explain *e, int side, const char *joint);

#endif
