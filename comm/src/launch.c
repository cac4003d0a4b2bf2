/* What the environment says: launchers and KNET_COMM. */
#include "launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"
#include "words.h"

typedef struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
} launcher;

/* SLURM_STEP_NUM_TASKS is set in what srun starts, but not in a batch script. */
static const launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

/* Whether mpiexec started this program inside a step of srun, whose variables it still has. */
static bool is_outer(const launcher *l) {
    const char *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    if (strcmp(l->name, "srun") != 0 || !rank || !size) return false;
    return strcmp(rank, getenv(l->rank)) != 0 || strcmp(size, getenv(l->size)) != 0;
}

/* Absent: *out keeps its value. */
static kn_status number_read(int *out, const char *name) {
    uint64_t value = 0;
    const char *text = *name ? getenv(name) : NULL;
    if (!text) return KN_OK;
    if (!kn__read_count(&value, text) || value > 1 << 24)
        return KN_FAIL(KN_ERR_INVALID, "%s=%s is not a number of ranks", name, text);
    *out = (int)value;
    return KN_OK;
}

static kn_status fail_contradiction(const launcher *l, const kn_comm_launch *found) {
    char local[64] = ""; /* where it is set */
    if (found->local_rank >= 0)
        snprintf(local, sizeof local, ", %s=%d", l->local_rank, found->local_rank);
    return KN_FAIL(KN_ERR_INVALID, "%s=%d, %s=%d%s contradict each other", l->rank, found->rank,
                   l->size, found->size, local);
}

kn_status kn_comm_launch_read(kn_comm_launch *out) {
    kn_comm_launch found = {"none", 0, 1, 0, 0};
    uint64_t timeout_ns = 0;
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_comm_launch_read: out is NULL");
    KN_TRY(kn__comm_words(&timeout_ns)); /* a wrong word is one without a launcher too */
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if (!getenv(l->rank) || !getenv(l->size) || is_outer(l)) continue;
        found.launcher = l->name;
        found.local_rank = -1;
        KN_TRY(number_read(&found.rank, l->rank));
        KN_TRY(number_read(&found.size, l->size));
        KN_TRY(number_read(&found.local_rank, l->local_rank));
        KN_TRY(number_read(&found.local_size, l->local_size));
        if (found.rank >= found.size || found.local_rank > found.rank)
            return fail_contradiction(l, &found);
        break;
    }
    *out = found;
    return KN_OK;
}

kn_status kn__comm_words(uint64_t *timeout_ns) {
    static const char timeout[] = "timeout=";
    const char *list = getenv("KNET_COMM");
    char word[64];
    size_t length;
    while (list && kn__words_next(&list, word, sizeof word, &length)) {
        bool is_timeout = strncmp(word, timeout, sizeof timeout - 1) == 0;
        if (!is_timeout || length >= sizeof word ||
            !kn__read_duration(timeout_ns, word + sizeof timeout - 1) || !*timeout_ns ||
            (double)*timeout_ns > 1e18)
            return KN_FAIL(KN_ERR_INVALID,
                           "KNET_COMM: '%s'; the one word is timeout=DURATION, such as "
                           "timeout=30s (" KN__DURATION_UNITS "), at most 1e9 s",
                           word);
    }
    return KN_OK;
}
