/* What ptxas made of the kernels: reads the images in the module (and in an object of kernels that
 * are wrong on purpose). No kernel may keep anything on a stack, where spilled registers go too
 * (but those of a list), and those that read dense operands do so 16 bytes at a time. The images
 * must be uncompressed.
 */
#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

/* Kernels without a load of 16 bytes, by a part of the mangled name, and why. */
static const struct {
    const char *part, *why;
} narrow[] = {
    {"14strided_kernel",
     "broadcast operands, whose neighbours are not the result's; odd addresses"},
    {"13gather_kernel", "one element at an index, unless slices are multiples of 16 bytes"},
    {"14scatter_kernel", "places are anywhere"},
    {"15segments_kernel", "the same"},
    {"11join_kernel", "indices of any dtype, which begin anywhere"},
    {"last_kernel", "the same; places are anywhere"},
    {"16add_lines_kernel", "the same"},
    {"16sort_line_kernel", "a warp reads 32 neighbours of a line, which begins anywhere"},
    {"radix_", "the same"},
    {"12store_kernel", "elements at sorted places"},
    {"13search_kernel", "elements halfway through a line"},
    {"10bin_kernel", "the arithmetic of f64 takes longer"},
    {"12frame_kernel", "rows of any length, which begin anywhere"},
    {"17copy_packs_kernel", "elements that are no neighbours, or at odd addresses"},
    {"11scan_kernel", "pieces that begin anywhere"},
    {"nonzero_", "a thread's eight elements, which begin anywhere"},
    {"10pad_kernel", "rows of any length, which begin anywhere"},
    {"15pad_back_kernel", "the same"},
    {"15triangle_kernel", "elements of any size, at odd addresses"},
    {"11rare_kernel", "rare rows and second derivatives, whose arithmetic takes longer"},
    {"11copy_kernel", "copies of regions whose rows aren't multiples of 16 bytes"},
    {"16transpose_kernel", "a tile is 32 elements wide, and rows begin anywhere"},
    {"row_shapeILi32ELi1E", "rows that aren't multiples of 16 bytes"},
    {"row_shapeILi256ELi1E", "the same"},
    {"row_shapeILi8ELi1E", "the same"},
    {"ELi256ELi1E", "rows of reductions, where V is 1: inputs at odd addresses"},
    {"ELi32ELi1E", "the same; powers, whose arithmetic takes longer"},
    {"finish_kernel", "one value a result"},
    {"long_", "rows of any length, which begin anywhere"},
    {"columns_kernel", "a warp reads 32 neighbours, however few columns there are"},
    {"19columns_back_kernel", "the same"},
    {"24relu_bias_columns_kernelILi", "the same, where V is 1; operands at odd addresses"},
    {"23relu_bias_planes_kernelILi", "planes that aren't multiples of 16 bytes; odd addresses"},
    {"15bias_act_kernelILi", "planes that aren't multiples of 16 bytes; odd addresses"},
    {"10nll_kernel", "one score a row"},
    {"15accuracy_kernel", "a row is read until it is decided"},
    {"15nll_back_kernel", "one label a row"},
    {"batch_moments_kernelILb1E", "a warp reads 32 neighbours, however few channels there are"},
    {"norm_sums_kernelILb1E", "the same"},
    {"batch_moments_kernelILb0ELi1E", "planes that aren't multiples of 16 bytes; odd addresses"},
    {"norm_sums_kernelILb0ELi1E", "the same"},
    {"batch_scale_kernelILi1E", "the same"},
    {"batch_back_kernelILi1E", "the same"},
    {"batch_eval_kernel", "one value a channel"},
    {"11mean_kernel", "one value a row"},
    {"11cast_kernel", "from types narrower than the one that they become"},
    {"pool", "windows that begin anywhere"},
    {"attention", "rows of any number of features; tiles go through shared memory"},
    {"12delta_kernel", "rows of any number of features"},
    {"rotary", "the same; angles"},
    {"10ctc_kernel", "states of a target, whatever their number"},
    {"resize", "elements of rows of any length"},
    {"grid_", "places anywhere in an image"},
    {"14dropout_kernel", "the map of random numbers gives a thread every eighth element"},
    {"14uniform_kernel", "the generator's state alone"},
    {"13normal_kernel", "the same"},
    {"15rng_take_kernel", "the same"},
    {"truncated_normal_kernel", "the same"},
    {"exponential_kernel", "the same"},
    {"bernoulli_kernel", "the same"},
    {"integers_kernel", "the same"},
    {"permutation_kernel", "the same"},
    {"place_rows_kernel", "rows of any length, which begin anywhere"},
    {"place_join_kernel", "one candidate a chunk"},
    {"scan_rows_kernel", "the same"},
    {"tri_scale_kernel", "the same"},
    {"lu_det_kernel", "a diagonal"},
    {"spoil_kernel", "one number a matrix"},
    {"15cholesky_kernel", "rows of any length, which begin anywhere"},
    {"9lu_kernel", "the same"},
    {"15lu_solve_kernel", "the same"},
    {"triangular_solve_kernel", "the same"},
};
/* Kernels that may keep something on a stack, and why. */
static const struct {
    const char *part, *why;
} stacks[] = {
    {"20cross_entropy_kernelIN6kn_dev9row_shapeILi32ELi1ELi4EEELi1024Ed",
     "f64 by 1024 threads, which have 64 registers each: 8 bytes"},
    {"7row_sin", "CUDA's sin and cos reduce large angles by a product in local memory"},
    {"7row_cos", "the same"},
    {"10row_lgamma", "its derivatives take sines of large angles"},
    {"19rotary_table_kernel", "the same"},
    {"11rare_kernel", "functions of few programs: large angles, tables, calls"},
    {"$__internal_", "what these kernels call: division and roots of f64"},
};
/* Those of the list that have to load 16 bytes all the same. */
static const char *const wide[] = {"11copy_kernelIjLb0E5uint4", "11copy_kernelImLb0E5uint4"};

typedef struct kernel {
    const char *name;
    unsigned stack_bytes;
    int n_loads, n_wide_loads; /* of global memory */
} kernel;

typedef struct kernels {
    kernel kernel[8000];
    int n;
} kernels;

/* --- reading images --- */

static unsigned char *file;
static size_t file_bytes;

static void read_file(const char *path) {
    free(file);
    file = NULL;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    file_bytes = (size_t)ftell(f);
    rewind(f);
    file = malloc(file_bytes + 1);
    assert_non_null(file);
    assert_int_equal(fread(file, 1, file_bytes, f), file_bytes);
    fclose(f);
}

static kernel *kernel_named(kernels *all, const char *name) {
    for (int i = 0; i < all->n; i++) {
        if (strcmp(all->kernel[i].name, name) == 0) return &all->kernel[i];
    }
    assert_true(all->n < (int)(sizeof all->kernel / sizeof *all->kernel));
    all->kernel[all->n] = (kernel){.name = name};
    return &all->kernel[all->n++];
}

/* Instructions have 16 bytes: the operation in the lowest 12 bits, the size of what a load moves
 * in bits 73 to 75, 6 for 16 bytes. */
static void count_loads(kernel *k, const unsigned char *code, size_t bytes) {
    for (size_t i = 0; i + 16 <= bytes; i += 16) {
        uint64_t low, high;
        memcpy(&low, code + i, 8);
        memcpy(&high, code + i + 8, 8);
        if ((low & 0xFFF) != 0x381 && (low & 0xFFF) != 0x981) continue;
        k->n_loads++;
        k->n_wide_loads += (high >> 9 & 7) == 6;
    }
}

/* Records {format, attribute, 16 bits of size or value, data}; attribute 0x11 is a frame's size. */
static void read_frames(kernels *all, const unsigned char *info, size_t bytes,
                        const Elf64_Sym *symbol, const char *names) {
    enum { SIZED = 4, FRAME_SIZE = 0x11 };
    for (size_t i = 0; i + 4 <= bytes;) {
        uint16_t size = (uint16_t)(info[i + 2] | info[i + 3] << 8);
        if (info[i] == SIZED && info[i + 1] == FRAME_SIZE) {
            uint32_t of, frame;
            memcpy(&of, info + i + 4, 4);
            memcpy(&frame, info + i + 8, 4);
            kernel_named(all, names + symbol[of].st_name)->stack_bytes = frame;
        }
        i += 4 + (info[i] == SIZED ? size : 0u);
    }
}

static void read_image(kernels *all, const unsigned char *image) {
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Shdr *section = (const void *)(image + head->e_shoff), *symbols = NULL;
    const char *names = (const char *)image + section[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; i++) {
        const char *name = names + section[i].sh_name;
        if (section[i].sh_type == SHT_SYMTAB) symbols = &section[i];
        if (strncmp(name, ".text.", 6) != 0) continue;
        count_loads(kernel_named(all, name + 6), image + section[i].sh_offset, section[i].sh_size);
    }
    assert_non_null(symbols);
    for (int i = 0; i < head->e_shnum; i++) {
        if (strcmp(names + section[i].sh_name, ".nv.info") != 0) continue;
        read_frames(all, image + section[i].sh_offset, section[i].sh_size,
                    (const void *)(image + symbols->sh_offset),
                    (const char *)image + section[symbols->sh_link].sh_offset);
    }
}

static void read_kernels(kernels *all, const char *path) {
    enum { CUDA = 190 };
    read_file(path);
    all->n = 0;
    for (size_t i = 0; i + sizeof(Elf64_Ehdr) <= file_bytes; i += 8) {
        const Elf64_Ehdr *head = (const void *)(file + i);
        if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_machine != CUDA) continue;
        read_image(all, file + i);
    }
}

/* --- judging them --- */

static bool may_be_narrow(const char *name) {
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (strstr(name, wide[i])) return false;
    }
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        if (strstr(name, narrow[i].part)) return true;
    }
    return false;
}

static bool may_have_stack(const char *name) {
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        if (strstr(name, stacks[i].part)) return true;
    }
    return false;
}

static int n_wrong(const kernels *all) {
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        const kernel *k = &all->kernel[i];
        bool has_stack = k->stack_bytes && !may_have_stack(k->name);
        if (has_stack) print_error("%s: %u bytes of stack\n", k->name, k->stack_bytes);
        bool is_narrow = k->n_loads && !k->n_wide_loads && !may_be_narrow(k->name);
        if (is_narrow) print_error("%s: no load of 16 bytes\n", k->name);
        n += has_stack || is_narrow;
    }
    return n;
}

static const char *module_path, *wrong_path;
static kernels found;

static void kernels_need_no_stack_and_read_dense_operands_16_bytes_at_a_time(void **state) {
    (void)state;
    read_kernels(&found, module_path);
    assert_true(found.n > 300);
    assert_int_equal(n_wrong(&found), 0);
}

static void every_line_of_the_list_is_needed(void **state) {
    (void)state;
    read_kernels(&found, module_path);
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        bool needed = false;
        for (int k = 0; k < found.n && !needed; k++) {
            const kernel *of = &found.kernel[k];
            needed = strstr(of->name, narrow[i].part) && of->n_loads && !of->n_wide_loads;
        }
        if (!needed) print_error("%s needs no exception\n", narrow[i].part);
        assert_true(needed);
    }
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        bool needed = false;
        for (int k = 0; k < found.n && !needed; k++) {
            const kernel *of = &found.kernel[k];
            needed = strstr(of->name, stacks[i].part) && of->stack_bytes;
        }
        if (!needed) print_error("%s needs no stack\n", stacks[i].part);
        assert_true(needed);
    }
}

static void stacks_spills_and_narrow_loads_are_found(void **state) {
    (void)state;
    read_kernels(&found, wrong_path);
    assert_int_equal(found.n, 3);
    for (int i = 0; i < found.n; i++) {
        const kernel *k = &found.kernel[i];
        bool is_narrow = strstr(k->name, "narrow") != NULL;
        assert_int_equal(k->stack_bytes != 0, !is_narrow);
        assert_true(k->n_loads > 0 && k->n_wide_loads == 0);
    }
}

int main(int argc, char **argv) {
    assert_true(argc == 3);
    module_path = argv[1], wrong_path = argv[2];
    int n_failed = RUN_TESTS(TEST(kernels_need_no_stack_and_read_dense_operands_16_bytes_at_a_time),
                             TEST(every_line_of_the_list_is_needed),
                             TEST(stacks_spills_and_narrow_loads_are_found));
    free(file);
    return n_failed;
}
