#include "stages.h"

#include <inttypes.h>
#include <knet/pipeline.h>
#include <string.h>

#include "words.h"

static bool has_empty_name(const char *devices) {
    size_t length = strlen(devices);
    return !length || devices[0] == ',' || devices[length - 1] == ',' || strstr(devices, ",,");
}

kn_status kn__stages_find(kn__stages *out, const char *devices, const kn_comm *comm) {
    char name[64];
    size_t length;
    if (has_empty_name(devices))
        return KN_FAIL(KN_ERR_INVALID, "--device '%s': a name is empty", devices);
    out->n = 0;
    for (const char *list = devices; kn__words_next(&list, name, sizeof name, &length); out->n++) {
        if (out->n == KN__STAGES_MAX)
            return KN_FAIL(KN_ERR_INVALID, "--device %s: the limit is %d devices", devices,
                           KN__STAGES_MAX);
        KN_TRY(kn_device_find(&out->device[out->n], name));
        if (kn_device_kind_get(out->device[out->n]) == KN_DEVICE_SIM)
            return KN_FAIL(KN_ERR_INVALID, "--device %s: %s computes nothing", devices, name);
    }
    if (comm && out->n > 1)
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "--device %s: each of %d ranks trains on one device; name one, or start one "
                       "process for several devices",
                       devices, kn_comm_size(comm));
    out->text = out->n > 1 ? devices : kn_device_name(out->device[0]);
    return KN_OK;
}

kn_status kn__stages_place(kn_model *model, const kn__stages *stages, const char *cut,
                           int n_micro) {
    char name[KN__STAGES_MAX][64];
    const char *first[KN__STAGES_MAX] = {NULL};
    size_t length;
    int n = 0;
    if (stages->n == 1 && !cut && n_micro <= 1) return KN_OK;
    if (stages->n == 1)
        return KN_FAIL(KN_ERR_INVALID, "%s applies only to several devices; --device names %s",
                       cut ? "--cut" : "--micro", stages->text);
    while (cut && n < KN__STAGES_MAX && kn__words_next(&cut, name[n], sizeof name[n], &length)) {
        first[n] = name[n];
        n++;
    }
    if (n && n != stages->n - 1)
        return KN_FAIL(KN_ERR_INVALID, "--cut names %d layers, but %d devices have %d cuts", n,
                       stages->n, stages->n - 1);
    kn_layer *net = kn_model_net(model);
    KN_TRY(kn_pipeline_place(net, stages->device, stages->n, n ? first : NULL));
    return kn_pipeline_micro(net, n_micro ? n_micro : 4 * stages->n);
}
