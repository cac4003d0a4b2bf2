/* Bins and records of blocks, with no pool around them. */
#include "core/bins.h"

#include "core/record.h"
#include "test.h"

typedef struct fixture {
    kn__meta meta;
    kn__records records;
    kn__stream stream;
} fixture;

static int setup(void **state) {
    static fixture f;
    memset(&f, 0, sizeof f);
    f.records.meta = &f.meta;
    kn__bins_init(&f.stream.bins);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    kn__meta_release(&((fixture *)*state)->meta);
    return 0;
}

static kn__block *make(fixture *f, uintptr_t address, size_t size) {
    kn__block *block = kn__block_create(&f->records, &f->stream, (char *)address, size);
    assert_non_null(block);
    return block;
}

static kn__block *put(fixture *f, uintptr_t address, size_t size) {
    kn__block *block = make(f, address, size);
    kn__bins_insert(&f->stream.bins, block);
    return block;
}

static void empty_bins_have_no_block(void **state) {
    const fixture *f = *state;
    for (size_t size = KN__BLOCK_GRAIN; size <= KN__SIZE_LIMIT; size *= 2) {
        assert_null(kn__bins_find(&f->stream.bins, size, KN__BLOCK_GRAIN));
    }
    assert_int_equal(kn__bins_bytes(&f->stream.bins), 0);
}

static void larger_blocks_are_in_no_smaller_bin(void **state) {
    (void)state;
    unsigned last = 0;
    for (size_t size = KN__BLOCK_GRAIN; size < (size_t)1 << 30;
         size += size / 64 / 512 * 512 + 512) {
        unsigned bin = kn__bin_of(size);
        assert_true(bin >= last && bin < KN__BINS);
        last = bin;
    }
    assert_true(kn__bin_of(2 * KN__SIZE_LIMIT - 1) < KN__BINS);
}

static void search_takes_the_exact_block_of_its_bin(void **state) {
    fixture *f = *state;
    size_t mib = (size_t)1 << 20;
    (void)put(f, 0x1000000, mib + 1024);
    kn__block *exact = put(f, 0x2000000, mib);
    (void)put(f, 0x3000000, mib + 512);
    assert_ptr_equal(kn__bins_find(&f->stream.bins, mib, KN__BLOCK_GRAIN), exact);
}

static void search_goes_on_to_larger_bins(void **state) {
    fixture *f = *state;
    (void)put(f, 0x1000000, 4096);
    kn__block *large = put(f, 0x2000000, (size_t)64 << 20);
    assert_ptr_equal(kn__bins_find(&f->stream.bins, 8192, KN__BLOCK_GRAIN), large);
    kn__bins_remove(&f->stream.bins, large);
    assert_null(kn__bins_find(&f->stream.bins, 8192, KN__BLOCK_GRAIN));
}

static void aligned_search_finds_a_block_where_it_fits(void **state) {
    fixture *f = *state;
    (void)put(f, 0x1000200, 65536); /* too short behind the next multiple */
    kn__block *fits = put(f, 0x2000000, 65536);
    assert_ptr_equal(kn__bins_find(&f->stream.bins, 65536, 65536), fits);
}

static void last_freed_block_comes_first(void **state) {
    fixture *f = *state;
    (void)put(f, 0x1000000, 4096);
    kn__block *last = put(f, 0x2000000, 4096);
    assert_ptr_equal(kn__bins_find(&f->stream.bins, 4096, KN__BLOCK_GRAIN), last);
}

static bool count(void *ctx, kn__block *block) {
    (void)block;
    ++*(int *)ctx;
    return false;
}

static bool descending(void *ctx, kn__block *block) {
    size_t *before = ctx;
    assert_true(kn__bin_of(block->size) <= kn__bin_of(*before));
    *before = block->size;
    return false;
}

static void walks_see_each_block_once_in_order(void **state) {
    fixture *f = *state;
    int n = 0;
    size_t before = KN__SIZE_LIMIT;
    for (uintptr_t i = 1; i <= 20; i++) (void)put(f, i << 32, (size_t)512 << i % 10);
    (void)kn__bins_visit(&f->stream.bins, 0, count, &n);
    assert_int_equal(n, 20);
    n = 0;
    (void)kn__bins_visit(&f->stream.bins, 512 << 5, count, &n);
    assert_int_equal(n, 10);
    (void)kn__bins_visit_down(&f->stream.bins, descending, &before);
    assert_int_equal(kn__bins_bytes(&f->stream.bins), 2 * 512 * 1023);
}

/* Against a list of what is in the bins. */
static void random_inserts_and_removes_keep_the_bins_whole(void **state) {
    fixture *f = *state;
    enum { N = 300 };
    kn__block *blocks[N] = {NULL};
    for (int step = 0; step < 20000; step++) {
        size_t i = test_random() % N;
        if (blocks[i]) {
            kn__bins_remove(&f->stream.bins, blocks[i]);
            kn__block_destroy(&f->records, blocks[i]);
            blocks[i] = NULL;
        } else {
            blocks[i] = put(f, (i + 1) << 32, (1 + test_random() % 4096) * KN__BLOCK_GRAIN);
        }
        size_t size = (1 + test_random() % 4096) * KN__BLOCK_GRAIN;
        const kn__block *found = kn__bins_find(&f->stream.bins, size, KN__BLOCK_GRAIN);
        bool fits = false, sure = false;
        for (int j = 0; j < N; j++) {
            fits |= blocks[j] && blocks[j] == found;
            sure |= blocks[j] && kn__bin_of(blocks[j]->size) > kn__bin_of(size);
        }
        assert_true(found ? fits && found->size >= size : !sure);
    }
}

static void split_parts_absorb_into_the_block_they_were(void **state) {
    fixture *f = *state;
    kn__block *block = make(f, 0x1000000, 65536);
    kn__block *right = kn__block_split(&f->records, block, 4096);
    kn__block *middle = kn__block_split(&f->records, block, 1024);
    assert_ptr_equal(block->right, middle);
    assert_ptr_equal(middle->right, right);
    assert_ptr_equal(right->left, middle);
    assert_int_equal(f->stream.refs, 3);
    assert_int_equal(middle->size, 3072);
    kn__block_set(middle, KN__FREE, 7);
    kn__block_absorb_right(&f->records, block);
    assert_int_equal(block->epoch, 7); /* the younger one's */
    kn__block_absorb_right(&f->records, block);
    assert_int_equal(block->size, 65536);
    assert_null(block->right);
    assert_null(right->ptr); /* a stale pointer finds no block */
    assert_int_equal(f->stream.refs, 1);
}

int main(void) {
    return RUN_TESTS(TEST_WITH(empty_bins_have_no_block, setup, teardown),
                     TEST_WITH(larger_blocks_are_in_no_smaller_bin, setup, teardown),
                     TEST_WITH(search_takes_the_exact_block_of_its_bin, setup, teardown),
                     TEST_WITH(search_goes_on_to_larger_bins, setup, teardown),
                     TEST_WITH(aligned_search_finds_a_block_where_it_fits, setup, teardown),
                     TEST_WITH(last_freed_block_comes_first, setup, teardown),
                     TEST_WITH(walks_see_each_block_once_in_order, setup, teardown),
                     TEST_WITH(random_inserts_and_removes_keep_the_bins_whole, setup, teardown),
                     TEST_WITH(split_parts_absorb_into_the_block_they_were, setup, teardown));
}
