/* Kernels of chains, by NVRTC and without a GPU: every row and random chains compile for several
 * architectures, products are not contracted with sums, and the folder of compiled kernels stands
 * damage. Skipped where NVRTC is missing. */
#include <elf.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/pointwise/chain_kernel.h"
#include "random_chain.h"
#include "test.h"

static const int archs[] = {80, 90, 100, 120};
enum { ARCHS = sizeof archs / sizeof *archs };

static void *compile(size_t *bytes, const kn__chain *c, int arch) {
    kn__text source = {0}, log = {0};
    kn__chain_source(&source, c, KN__CHAIN_KERNEL);
    void *code = kn__chain_compile(bytes, &log, source.data, arch);
    if (!code) fail_msg("%s\n%s", source.data, log.data);
    kn__text_release(&source);
    kn__text_release(&log);
    return code;
}

static void compiles(kn__chain *c, int arch) {
    if (!c->n_steps) return;
    size_t bytes = 0;
    free(compile(&bytes, c, arch));
    assert_true(bytes > 1000);
    memset(c, 0, sizeof *c);
}

/* Of one dtype: the rows, their derivatives, or sums with those, by the bits of `orders`;
 * every one, or every `stride`-th. */
static void rows_compile(kn_dtype dtype, int arch, unsigned orders, int stride) {
    kn__chain c;
    memset(&c, 0, sizeof c);
    int n = 0;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        const kn_op_info *info = &kn_op_table[op];
        if (!chain_op_is_step((kn_op)op) || !(orders >> info->order & 1)) continue;
        if ((op + arch) % stride) continue;
        for (int r = 0; r < 3 && (r == 0 || info->order); r++) {
            if (c.n_steps == 6 || c.n_operands + 8 > KN__CHAIN_OPERANDS) compiles(&c, arch);
            n += chain_add(&c, (kn_op)op, dtype, r, true);
        }
    }
    compiles(&c, arch);
    assert_true(n > 15);
}

static void every_row_and_its_derivatives_compile_for_sm_90(void **state) {
    (void)state;
    rows_compile(KN_F32, 90, 3, 1);
}
static void second_derivatives_of_f64_compile_for_sm_80(void **state) {
    (void)state;
    rows_compile(KN_F64, 80, 4, 2);
}
static void rows_of_16_bits_compile_for_sm_100_and_120(void **state) {
    (void)state;
    rows_compile(KN_F16, 100, 7, 4);
    rows_compile(KN_BF16, 120, 7, 4);
}
static void every_row_of_integers_compiles(void **state) {
    (void)state;
    for (kn_dtype dtype = KN_I64; dtype <= KN_U8; dtype++) rows_compile(dtype, 90, 1, 1);
}

static void random_chains_compile(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        kn__chain c = chain_random(2 + i, i % 4);
        compiles(&c, archs[i % ARCHS]);
    }
}

/* --- arithmetic --- */

static kn__chain mul_add(void) {
    kn__chain c;
    memset(&c, 0, sizeof c);
    c.n_steps = 2, c.n_operands = 3;
    memset(c.dtype, KN_F32, 3);
    c.step[0] = (kn__chain_step){.op = KN_OP_mul,
                                 .dtype = KN_F32,
                                 .to = KN_F32,
                                 .n_in = 2,
                                 .in = {KN__CHAIN_STEPS, KN__CHAIN_STEPS + 1}};
    c.step[1] = (kn__chain_step){.op = KN_OP_add,
                                 .dtype = KN_F32,
                                 .to = KN_F32,
                                 .n_in = 2,
                                 .in = {0, KN__CHAIN_STEPS + 2},
                                 .stored = 1};
    return c;
}

/* Instructions of 16 bytes, from sm_70 on: the low bits name the operation. */
enum { FMUL = 0x020, FADD = 0x021, FFMA = 0x023 };

static int count(const char *code, int operation) {
    const Elf64_Ehdr *elf = (const void *)code;
    const Elf64_Shdr *section = (const void *)(code + elf->e_shoff);
    const char *names = code + section[elf->e_shstrndx].sh_offset;
    int n = 0;
    for (int i = 0; i < elf->e_shnum; i++) {
        if (strcmp(names + section[i].sh_name, ".text." KN__CHAIN_KERNEL) != 0) continue;
        for (uint64_t at = 0; at + 16 <= section[i].sh_size; at += 16) {
            uint64_t word;
            memcpy(&word, code + section[i].sh_offset + at, sizeof word);
            n += (word & 0x1FF) == (uint64_t)operation;
        }
    }
    return n;
}

static void a_product_and_a_sum_stay_two_instructions(void **state) {
    (void)state;
    size_t bytes = 0;
    kn__chain c = mul_add();
    char *code = compile(&bytes, &c, 90);
    assert_true(count(code, FMUL) >= 4);
    assert_true(count(code, FADD) >= 4);
    assert_int_equal(count(code, FFMA), 0);
    free(code);
}

static void an_error_of_the_compiler_is_told(void **state) {
    (void)state;
    size_t bytes = 0;
    kn__text log = {0};
    assert_null(kn__chain_compile(&bytes, &log, "not C++;\n", 90));
    assert_non_null(strstr(log.data, "not"));
    kn__text_release(&log);
    assert_null(kn__chain_compile(&bytes, &log, "\n", 999));
    assert_non_null(strstr(log.data, "sm_999"));
    kn__text_release(&log);
}

/* --- the folder --- */

static char folder[64], file[128];
static const char key[] = "a kernel's source", code[] = "its machine code";

/* The one file in it. */
static void find_file(void) {
    char command[128];
    snprintf(command, sizeof command, "ls %s/knet/*.chain", folder);
    FILE *ls = popen(command, "r");
    assert_non_null(ls);
    assert_non_null(fgets(file, sizeof file, ls));
    pclose(ls);
    file[strcspn(file, "\n")] = 0;
}

static int folder_make(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/knet_chains_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int folder_remove(void **state) {
    (void)state;
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s && rm -r %s", folder, folder);
    return system(command);
}

static bool is_stored(void) {
    size_t bytes = 0;
    char *found = kn__chain_disk_read(&bytes, key);
    bool same = found && bytes == sizeof code && memcmp(found, code, bytes) == 0;
    assert_true(same == (found != NULL));
    free(found);
    return same;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    assert_false(is_stored());
    kn__chain_disk_write(key, code, sizeof code);
    assert_true(is_stored());
    size_t bytes = 0;
    assert_null(kn__chain_disk_read(&bytes, "another kernel's source"));
}

/* Each byte changed, and every length. */
static void a_damaged_file_is_a_miss_and_written_anew(void **state) {
    (void)state;
    kn__chain_disk_write(key, code, sizeof code);
    find_file();
    char whole[256], other[256];
    FILE *f = fopen(file, "r");
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    assert_true(n > sizeof code + sizeof key && n < sizeof whole);
    for (size_t i = 0; i < 2 * n; i++) {
        memcpy(other, whole, n);
        if (i < n) other[i] ^= 0x40;
        f = fopen(file, "w");
        fwrite(other, 1, i < n ? n : i - n, f);
        fclose(f);
        assert_false(is_stored());
    }
    kn__chain_disk_write(key, code, sizeof code);
    assert_true(is_stored());
}

static void a_folder_that_cannot_be_written_is_left_alone(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/knet", folder);
    FILE *f = fopen(path, "w"); /* a file is where the folder would be: root may write anywhere */
    fclose(f);
    kn__chain_disk_write(key, code, sizeof code);
    assert_false(is_stored());
    unsetenv("XDG_CACHE_HOME");
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    unsetenv("HOME");
    kn__chain_disk_write(key, code, sizeof code);
    assert_false(is_stored());
    if (home) setenv("HOME", home, 1);
    free(home);
}

/* Stands for a full disk: writing beyond the limit fails. */
static void a_full_disk_leaves_nothing_behind(void **state) {
    (void)state;
    struct rlimit old, small = {20, 20};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    kn__chain_disk_write(key, code, sizeof code);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_false(is_stored());
    char command[128];
    snprintf(command, sizeof command, "test -z \"$(ls %s/knet)\"", folder);
    assert_int_equal(system(command), 0);
    kn__chain_disk_write(key, code, sizeof code);
    assert_true(is_stored());
}

/* Files that were read lately stay. */
static void the_folder_stays_below_its_limit(void **state) {
    (void)state;
    enum { PART = KN__CHAIN_DISK_BYTES / 8 };
    char *large = calloc(1, PART), name[16], other[128];
    size_t bytes = 0;
    kn__chain_disk_write(key, code, sizeof code); /* makes the folder */
    snprintf(other, sizeof other, "%s/knet/peaks", folder);
    close(open(other, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(utimensat(AT_FDCWD, other, (const struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "key %d", i);
        kn__chain_disk_write(name, large, PART);
        free(kn__chain_disk_read(&bytes, "key 0"));
        usleep(20000); /* times of files are as coarse as the kernel's clock */
    }
    assert_int_equal(bytes, PART);
    assert_null(kn__chain_disk_read(&bytes, "key 1"));
    assert_int_equal(access(other, F_OK), 0); /* what others keep there stays, however old */
    char *last = kn__chain_disk_read(&bytes, "key 11");
    assert_non_null(last);
    free(last);
    free(large);
}

static void processes_write_the_same_file_at_once(void **state) {
    (void)state;
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        if ((child[i] = fork()) != 0) continue;
        bool ok = true;
        for (int n = 0; n < 200; n++) {
            kn__chain_disk_write(key, code, sizeof code);
            size_t bytes = 0;
            char *found = kn__chain_disk_read(&bytes, key);
            ok = ok && found && bytes == sizeof code && memcmp(found, code, bytes) == 0;
            free(found);
        }
        _exit(!ok);
    }
    for (int i = 0; i < 4; i++) {
        int status = 1;
        waitpid(child[i], &status, 0);
        assert_int_equal(status, 0);
    }
    assert_true(is_stored());
}

#define IN_FOLDER(fn) TEST_WITH(fn, folder_make, folder_remove)

int main(void) {
    int failed = RUN_TESTS(
        IN_FOLDER(what_is_written_is_read), IN_FOLDER(a_damaged_file_is_a_miss_and_written_anew),
        IN_FOLDER(a_folder_that_cannot_be_written_is_left_alone),
        IN_FOLDER(a_full_disk_leaves_nothing_behind), IN_FOLDER(the_folder_stays_below_its_limit),
        IN_FOLDER(processes_write_the_same_file_at_once));
    if (failed) return failed;
    if (!kn__chain_can_compile()) test_skip_all("NVRTC is not there");
    return RUN_TESTS(TEST(a_product_and_a_sum_stay_two_instructions),
                     TEST(an_error_of_the_compiler_is_told), TEST(random_chains_compile),
                     TEST_LONG(every_row_and_its_derivatives_compile_for_sm_90),
                     TEST_LONG(second_derivatives_of_f64_compile_for_sm_80),
                     TEST_LONG(rows_of_16_bits_compile_for_sm_100_and_120),
                     TEST_LONG(every_row_of_integers_compiles));
}
