/* Scopes that the tape remembers. */
#include "tape.h"

/* The label is copied: its owner may be gone before the tape. */
static const kn__place *place_make(kn__tape *tape, const char *label) {
    size_t bytes = strlen(label) + 1;
    kn__place *place = kn__tape_take(tape, sizeof *place + bytes);
    if (!place) return NULL;
    place->up = tape->place;
    place->depth = tape->place ? tape->place->depth + 1 : 1;
    memcpy(place->label, label, bytes);
    KN_ASSERT(place->depth <= KN__PLACES_MAX);
    return place;
}

kn_tape_scope kn_tape_scope_begin(const char *label) {
    kn_tape_scope scope = {.scope = kn_scope_begin(label)};
    kn__tape *tape = kn_frame_recording() ? kn_frame_tape() : NULL;
    if (!tape || (tape->place && tape->place->depth == KN__PLACES_MAX)) return scope;
    const kn__place *outer = tape->place, *place = place_make(tape, label);
    if (!place) return scope; /* the timer alone names it: no reason to fail a forward pass */
    scope.tape = tape;
    scope.outer = outer;
    scope.serial = tape->serial;
    tape->place = place;
    return scope;
}

/* A backward inside the scope, or the end of the tape, cleared the places. */
void kn_tape_scope_end(kn_tape_scope *scope) {
    kn__tape *tape = scope->tape;
    if (tape && tape == kn_frame_tape() && tape->serial == scope->serial) {
        KN_ASSERT(tape->place && tape->place->up == scope->outer);
        tape->place = scope->outer;
    }
    scope->tape = NULL;
    kn_scope_end(&scope->scope);
}
