/* Kernels of chains (chain.h): their sources, compiled by NVRTC, kept in memory and on disk. NVRTC
 * is loaded when a first chain asks for it; where it is absent, no chain ever has a kernel. */
#ifndef KN_CUDA_CHAIN_KERNEL_H
#define KN_CUDA_CHAIN_KERNEL_H

#include "chain.h"
#include "text.h"

/* --- chain_source.c --- */

/* Elements that a thread of the kernel moves at a time; 1 where operands are strided, or a row is
 * a rare one. */
int kn__chain_width(const kn__chain *chain);
/* Adds the source of the kernel `name`, of a kn__chain_args. It includes chain.cuh. */
void kn__chain_source(kn__text *out, const kn__chain *chain, const char *name);

/* --- chain_compile.c --- */

#define KN__CHAIN_KERNEL "knet_chain"

/* The files that sources include, by the names they use; ends with a NULL name. */
typedef struct kn__chain_file {
    const char *name, *text;
} kn__chain_file;
extern const kn__chain_file kn__chain_files[];

/* Whether NVRTC is there; loads it. */
bool kn__chain_can_compile(void);
/* What a kernel depends on besides its source: the version of NVRTC and the text of the headers. */
uint64_t kn__chain_compiler_hash(void);
/* The machine code of a source for an architecture (90: sm_90), from malloc. NULL: *log, which is
 * the caller's to release, says why. */
void *kn__chain_compile(size_t *bytes, kn__text *log, const char *source, int arch);

/* --- chain_disk.c: a folder of machine code, XDG_CACHE_HOME/knet or ~/.cache/knet --- */

enum { KN__CHAIN_DISK_BYTES = 64 << 20 }; /* the most; the files not read for longest go first */

/* The text stored under the key, from malloc; NULL: missing or damaged. */
void *kn__chain_disk_read(size_t *bytes, const char *key);
/* Stores it, or leaves the folder as it was where that fails. Any number of processes may. */
void kn__chain_disk_write(const char *key, const void *code, size_t bytes);

#endif
