#include "mute.h"

_Thread_local int kn__muted __attribute__((tls_model("initial-exec")));
