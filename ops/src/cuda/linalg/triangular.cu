// op(T)·x = b by substitution.

#include "cuda/base/device.cuh"

namespace {

using namespace kn_dev;

enum { ROWS = KN__TRIANGULAR_ROWS, WARPS = BLOCK / 32 };

// A block solves for COLUMNS columns, ROWS rows at a time: all its warps subtract what the solved
// rows give, then a warp a column solves by the block of T on the diagonal. A lane has a row, so
// that `row` had better be 1. T is lower triangular here: element (i, j) at i·row + j·column;
// negative strides make it of an upper one.
template <class T, int COLUMNS>
__global__ void __launch_bounds__(BLOCK, 1)
    triangular_solve_kernel(T *x, const T *t, int64_t batch, int64_t n, int64_t columns,
                            int64_t row, int64_t column, int64_t x_row, bool unit) {
    KN_SHARED(diagonal, T[ROWS][ROWS + 1]);
    KN_SHARED(parts, T[COLUMNS][WARPS][ROWS]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t tiles = (columns + COLUMNS - 1) / COLUMNS;
    for (int64_t b = blockIdx.x; b < batch * tiles; b += gridDim.x) {
        const int64_t first = b % tiles * COLUMNS;
        const int width = (int)(columns - first < COLUMNS ? columns - first : COLUMNS);
        const T *own = t + b / tiles * n * n + (row < 0 ? n * n - 1 : 0);
        T *to = x + b / tiles * n * columns + (x_row < 0 ? (n - 1) * columns : 0) + first;
        for (int64_t top = 0; top < n; top += ROWS) {
            const int64_t i = top + lane;
            const bool has = i < n;
            for (int j = warp; j < ROWS; j += WARPS)
                if (has && j <= lane) diagonal[lane][j] = own[i * row + (top + j) * column];
            T sum[COLUMNS];
            for (int c = 0; c < COLUMNS; c++) sum[c] = T(0);
#pragma unroll 4
            for (int64_t j = warp; j < top; j += WARPS) {
                const T factor = has ? own[i * row + j * column] : T(0);
                for (int c = 0; c < COLUMNS; c++)
                    sum[c] += factor * to[j * x_row + (c < width ? c : 0)];
            }
            for (int c = 0; c < COLUMNS; c++) parts[c][warp][lane] = sum[c];
            __syncthreads();
            for (int c = warp; c < width; c += WARPS) {
                T known = T(0);
                for (int w = 0; w < WARPS; w++) known += parts[c][w][lane];
                T rest = (has ? to[i * x_row + c] : T(0)) - known;
                const T d = has && !unit ? diagonal[lane][lane] : T(1);
                const int rows = (int)(n - top < ROWS ? n - top : ROWS);
                for (int j = 0; j + 1 < rows; j++) {
                    const T solved = __shfl_sync(0xffffffffu, rest / d, j);
                    if (lane > j) rest -= diagonal[lane][j] * solved;
                }
                if (has) to[i * x_row + c] = rest / d;
            }
            __syncthreads();
        }
    }
}

template <class T, int COLUMNS>
void solve(const kn__triangular *p, cudaStream_t stream) {
    const bool mirrored = p->upper != p->trans;  // op(T) is upper: from its last row on
    const int64_t sign = mirrored ? -1 : 1;
    const int64_t tiles = p->batch * ((p->columns + COLUMNS - 1) / COLUMNS);
    KN_LAUNCH((triangular_solve_kernel<T, COLUMNS>), blocks_for(tiles, 1), BLOCK, stream, (T *)p->x,
              (const T *)p->t, p->batch, p->n, p->columns, sign * (p->trans ? 1 : p->n),
              sign * (p->trans ? p->n : 1), sign * p->columns, p->unit);
}

}  // namespace

extern "C" cudaError_t kn__launch_triangular_solve(const kn__triangular *p, cudaStream_t stream) {
    return with_float(p->dtype, [&](auto t) {
        using T = decltype(t);
        // Few columns are spread over more blocks; many read T less often.
        if (p->batch * p->columns <= 512)
            solve<T, 2>(p, stream);
        else
            solve<T, 8>(p, stream);
        return cudaGetLastError();
    });
}
