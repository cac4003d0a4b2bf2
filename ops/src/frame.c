#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <knet/prof.h>

#include "capture.h"
#include "checked.h"
#include "fuse.h"
#include "modes.h"
#include "thread.h"

const kn_recorder *kn__recorder;

void kn_recorder_attach(const kn_recorder *recorder) { kn__recorder = recorder; }

void *kn__no_frame(void) {
    return kn_fail_null_within_at(NULL, 0, KN_ERR_INVALID,
                                  "no frame is open on this thread: results need a KN_FRAME() or "
                                  "KN_TAPE() to belong to");
}

/* --- what frames own --- */

bool kn__owned_grow(kn__ops_thread *self) {
    uint32_t cap = self->owned_cap ? self->owned_cap * 2 : 256;
    kn_tensor **owned = realloc(self->owned, cap * sizeof(kn_tensor *));
    if (!owned) {
        KN_FAIL_NULL(KN_ERR_OOM, "no host memory for a frame of %u tensors", self->n_owned);
        return false;
    }
    self->owned = owned;
    self->owned_cap = cap;
    return true;
}

static void put(kn__ops_thread *self, uint32_t i, kn_tensor *t) {
    self->owned[i] = t;
    if (t) t->owned = i;
}

/* Whether t is one of the innermost frame's. */
static bool is_innermost(const kn__ops_thread *self, const kn_tensor *t) {
    return self && self->frame && t && t->owned < self->n_owned && t->owned >= self->frame->first &&
           self->owned[t->owned] == t;
}

kn_tensor *kn_keep(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_self;
    if (!is_innermost(self, t)) return t;
    if (self->n_frames == 1) {
        return KN_FAIL_NULL(KN_ERR_INVALID,
                            "kn_keep: no frame is open outside the innermost one; kn_hold keeps "
                            "what outlives frames");
    }
    uint32_t border = self->frame->first++;
    put(self, t->owned, self->owned[border]);
    put(self, border, t);
    return t;
}

static void forget(kn__ops_thread *self, kn_tensor *t) {
    put(self, t->owned, self->owned[self->n_owned - 1]);
    self->n_owned--;
    t->owned = UINT32_MAX;
}

/* A frame's reference. */
static void release(kn_tensor *t) {
    if (__builtin_expect(t->again_refs != 0, 0)) kn__tensor_forget(t);
    kn_tensor_release(t);
}

void kn_drop(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_self;
    if (!is_innermost(self, t)) return;
    forget(self, t);
    release(t);
}

kn_tensor *kn_tensor_detach_frame(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_self;
    if (!self || !t || t->owned >= self->n_owned || self->owned[t->owned] != t) return t;
    if (is_innermost(self, t)) {
        forget(self, t);
    } else {
        self->owned[t->owned] = NULL; /* an outer segment keeps a hole until it ends */
        t->owned = UINT32_MAX;
    }
    return t;
}

static void release_to(kn__ops_thread *self, uint32_t n) {
    while (self->n_owned > n) {
        kn_tensor *t = self->owned[--self->n_owned];
        if (!t) continue;
        t->owned = UINT32_MAX;
        release(t);
    }
}

bool kn_frame_fuses(void) {
    return kn__ops_self && kn__ops_self->frame && kn__ops_self->frame->fuse;
}

bool kn_frame_recomputes(size_t size_bytes) {
    enum { LEAST_BYTES = 64 << 10 }; /* smaller ones free little, a call costs the same */
    if (!kn__ops_self || !kn__ops_self->frame || !kn__ops_self->frame->recompute) return false;
    return size_bytes >= LEAST_BYTES || kn__mode_recompute() == KN__MODE_ALL;
}

uint32_t kn_frame_mark(void) { return kn__ops_self ? kn__ops_self->n_owned : 0; }

void kn_frame_release_to(uint32_t mark) {
    kn__ops_thread *self = kn__ops_self;
    if (!self || !self->frame) return;
    release_to(self, mark > self->frame->first ? mark : self->frame->first);
}

/* --- math modes --- */

static _Atomic(int) process_math = KN_MATH_STRICT;

const char *kn_math_mode_name(kn_math_mode mode) {
    static const char *const names[] = {"none", "strict", "tf32", "bf16"};
    return names[mode >= KN_MATH_STRICT && mode <= KN_MATH_BF16 ? mode : 0];
}

static void note_modes(unsigned used) {
    char text[64] = "";
    size_t n = 0;
    for (int m = KN_MATH_STRICT; m <= KN_MATH_BF16; m++) {
        if (!(used >> m & 1)) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "+" : "",
                              kn_math_mode_name((kn_math_mode)m));
    }
    (void)!kn_prof_note("math", text); /* of 16 other keys the mode is left out */
}

/* Every report of the timer names the modes that frames had. */
static void note_mode(kn_math_mode mode) {
    static _Atomic(unsigned) used;
    unsigned bit = 1u << mode, now = atomic_load_explicit(&used, memory_order_relaxed);
    if (now & bit) return;
    now = atomic_fetch_or(&used, bit) | bit;
    for (unsigned noted = 0; noted != now; now = atomic_load(&used)) {
        noted = now;
        note_modes(noted);
    }
}

kn_status kn_math_mode_set(kn_math_mode mode) {
    if (mode < KN_MATH_STRICT || mode > KN_MATH_BF16) {
        return KN_FAIL(KN_ERR_INVALID, "kn_math_mode_set: there is no mode %d", (int)mode);
    }
    atomic_store_explicit(&process_math, (int)mode, memory_order_relaxed);
    return KN_OK;
}

kn_math_mode kn_math_mode_get(void) {
    return (kn_math_mode)atomic_load_explicit(&process_math, memory_order_relaxed);
}

/* --- frames --- */

static kn_status options_check(const kn_frame_options *o, const kn__frame *outer) {
    for (int i = 0; i < 2; i++) {
        if (o->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: reserved[%d] is not zero", i);
        }
    }
    if (o->dtype && o->dtype != KN_F32 && o->dtype != KN_F64) {
        return KN_FAIL(KN_ERR_DTYPE, "kn_frame_begin: dtype is %s; it must be f32 or f64",
                       kn_dtype_name(o->dtype));
    }
    if (o->record != 0 && o->record != KN_OFF) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: record is %d; it must be 0 or KN_OFF",
                       o->record);
    }
    if (o->fuse != 0 && o->fuse != 1 && o->fuse != KN_OFF) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: fuse is %d; it must be 0, 1 or KN_OFF",
                       o->fuse);
    }
    if (o->recompute != 0 && o->recompute != 1 && o->recompute != KN_OFF) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: recompute is %d; it must be 0, 1 or KN_OFF",
                       o->recompute);
    }
    if (o->autocast != 0 && o->autocast != KN_OFF && o->autocast != KN_F16 &&
        o->autocast != KN_BF16) {
        return KN_FAIL(KN_ERR_DTYPE,
                       "kn_frame_begin: autocast is %d; it must be KN_F16, KN_BF16, KN_OFF or 0",
                       o->autocast);
    }
    if (o->layout != KN_OFF && (o->layout < 0 || o->layout > 2)) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: layout is %d; it must be 0, 1, 2 or KN_OFF",
                       o->layout);
    }
    if (o->threads < 0) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: threads is %d", o->threads);
    }
    if (o->math < 0 || o->math > KN_MATH_BF16) {
        return KN_FAIL(KN_ERR_INVALID, "kn_frame_begin: there is no math mode %d", o->math);
    }
    kn_device *device = o->device ? o->device : outer->device;
    if (o->pool && kn_pool_device(o->pool) != device) {
        return KN_FAIL(KN_ERR_DEVICE, "kn_frame_begin: pool %s is on %s, the frame is on %s",
                       kn_pool_name(o->pool), kn_device_name(kn_pool_device(o->pool)),
                       kn_device_name(device));
    }
    return KN_OK;
}

/* What the options leave zero comes from outside, as long as the device stays the same. */
static kn_status place(kn__frame *frame, const kn_frame_options *o, const kn__frame *outer) {
    bool moved = o->device && o->device != outer->device;
    if (o->device) frame->device = o->device;
    if (o->stream) {
        frame->stream = o->stream;
    } else if (moved || !outer->serial) {
        KN_TRY(kn_stream_of_thread(&frame->stream, frame->device));
    }
    if (o->pool) {
        frame->pool = o->pool;
    } else if (moved || !outer->pool) {
        frame->pool = kn_device_pool(frame->device);
        if (!frame->pool) return kn_check();
    }
    return KN_OK;
}

static kn_status frames_grow(kn__ops_thread *self) {
    uint32_t cap = self->frames_cap ? self->frames_cap * 2 : 32;
    kn__frame *frames = realloc(self->frames, cap * sizeof *frames);
    if (!frames) return KN_FAIL(KN_ERR_OOM, "no host memory for %u frames", cap);
    self->frames = frames;
    self->frames_cap = cap;
    if (self->n_frames) self->frame = &frames[self->n_frames - 1];
    return KN_OK;
}

static kn_status open_frame(kn_frame *out, kn__ops_thread *self, const kn_frame_options *o,
                            void *tape) {
    if (self->n_frames == self->frames_cap) KN_TRY(frames_grow(self));
    const kn__frame *outer = self->frame ? self->frame : &self->defaults;
    KN_TRY(options_check(o, outer));
    /* Records on the open tape again, inside a frame that turned recording off: kn_recompute. */
    if (tape && outer->tape && outer->tape != tape) {
        return KN_FAIL(KN_ERR_INVALID,
                       "a tape is open already; tapes don't nest: see kn_gradients "
                       "with .again for higher derivatives");
    }
    kn__frame frame = *outer;
    KN_TRY(place(&frame, o, outer));
    if (o->dtype) frame.dtype = o->dtype;
    if (o->threads) frame.threads = o->threads;
    if (o->math)
        frame.math = (kn_math_mode)o->math;
    else if (!outer->serial)
        frame.math = kn_math_mode_get();
    note_mode(frame.math);
    if (tape) {
        frame.tape = tape;
        frame.recording = true;
    }
    if (o->record == KN_OFF) frame.recording = false;
    if (o->fuse) frame.fuse = o->fuse == 1 && kn__mode_fuse() != KN__MODE_NEVER && !self->capture;
    if (o->recompute) frame.recompute = o->recompute == 1 && kn__mode_recompute() != KN__MODE_NEVER;
    if (o->autocast) frame.autocast = o->autocast == KN_OFF ? 0 : (uint8_t)o->autocast;
    if (o->layout) frame.layout = o->layout == KN_OFF ? 0 : (uint8_t)o->layout;
    frame.opens_tape = tape && tape != outer->tape;
    frame.first = self->n_owned;
    frame.serial = ++self->serial ? self->serial : ++self->serial;
    self->frames[self->n_frames++] = frame;
    self->frame = &self->frames[self->n_frames - 1];
    *out = (kn_frame){self->n_frames, frame.serial};
    return KN_OK;
}

static kn_frame begin(const kn_frame_options *options, void *tape) {
    static const kn_frame_options defaults = {.reserved = {0}};
    kn_frame frame = {0, 0};
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return frame;
    kn_status status = open_frame(&frame, self, options ? options : &defaults, tape);
    if (status < 0) kn_error_defer(status);
    return frame;
}

kn_frame kn_frame_begin(const kn_frame_options *options) { return begin(options, NULL); }

kn_frame kn_frame_begin_tape(const kn_frame_options *options, void *tape) {
    KN_ASSERT(tape);
    return begin(options, tape);
}

/* An untaken error must not affect the thread's next calls. */
static void log_untaken(void) {
    if (!kn_pending()) return;
    const kn_error *e = kn_last_error();
    kn_log_write(0, "error not taken before the outermost frame ended: %s (%s:%d)", e->message,
                 e->file ? e->file : "?", e->line);
    if (kn_check()) return; /* taken */
}

void kn__frames_end(kn__ops_thread *self, uint32_t depth) {
    bool any = self->n_frames > depth;
    while (self->n_frames > depth) {
        kn__frame *frame = self->frame;
        KN_ASSERT(frame);
        if (frame->opens_tape && kn__recorder) kn__recorder->tape_end(frame->tape);
        release_to(self, frame->first);
        kn_stream stream = frame->stream;
        self->n_frames--;
        self->frame = self->n_frames ? &self->frames[self->n_frames - 1] : NULL;
        /* Its stream may be destroyed before the kept memory is read. */
        bool leaves = self->frame && self->frame->stream != stream;
        kn_status status = leaves && self->pending ? kn__fuse_all(self) : KN_OK;
        if (status < 0) kn_error_defer(status);
    }
    kn__capture_frames_end(self, depth);
    if (any && depth == 0) {
        kn_status status = kn__fuse_all(self);
        if (status < 0) kn_error_defer(status);
        log_untaken();
    }
}

void kn_frame_end(kn_frame *frame) {
    kn__ops_thread *self = kn__ops_self;
    uint32_t depth = frame->depth, serial = frame->serial;
    if (!serial || !self || depth > self->n_frames) return;
    frame->serial = 0;
    if (self->frames[depth - 1].serial == serial) kn__frames_end(self, depth - 1);
}

/* --- what the innermost frame carries --- */

static const kn__frame *innermost(void) {
    static const kn__frame none = {.dtype = KN_F32, .threads = 1, .math = KN_MATH_STRICT};
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return &none;
    return self->frame ? self->frame : &self->defaults;
}

kn_stream kn_frame_stream(void) {
    const kn__frame *frame = innermost();
    kn_stream stream = frame->stream;
    if (frame->serial || !frame->device) return stream;
    return kn_stream_of_thread(&stream, frame->device) == KN_OK ? stream : NULL;
}

kn_device *kn_frame_device(void) {
    kn_device *device = innermost()->device;
    return device ? device : kn_device_host();
}

kn_pool *kn_frame_pool(void) {
    const kn__frame *frame = innermost();
    return frame->pool ? frame->pool : kn_device_pool(kn_frame_device());
}

kn_dtype kn_frame_dtype(void) { return innermost()->dtype; }
int kn_frame_threads(void) { return innermost()->threads; }
kn_math_mode kn_frame_math(void) {
    const kn__frame *frame = innermost();
    return frame->serial ? frame->math : kn_math_mode_get();
}
kn_dtype kn_frame_autocast(void) { return (kn_dtype)innermost()->autocast; }
void *kn_frame_tape(void) { return innermost()->tape; }
bool kn_frame_recording(void) { return innermost()->recording; }
