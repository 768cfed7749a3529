// Defines code that the kernels of normalizations share. It is compiled for one width
// (DSLAUNCH_COLUMNS), one type of element (DSLAUNCH_ELEMENT), and one number of warps that process
// each row (DSLAUNCH_WARPS). The elements of a row stay in the registers of these warps.

using T = DSLAUNCH_ELEMENT;
constexpr int kColumns = DSLAUNCH_COLUMNS;
constexpr int kRowWarps = DSLAUNCH_WARPS;
constexpr int kNormWarps = 8;  // per block; equals the value in kernel_calls.cc
constexpr int kBlockRows = kNormWarps / kRowWarps;  // rows that a block processes at once
constexpr int kRowLanes = kRowWarps * kWarp;
constexpr int kCount = 16 / sizeof(T);
// Packs per lane.
constexpr int kPacks = (kColumns + kRowLanes * kCount - 1) / (kRowLanes * kCount);
constexpr int kPaddedColumns = kPacks * kRowLanes * kCount;

using RowPack = Pack<T, kCount>;

__device__ int LaneOfRow() { return threadIdx.y % kRowWarps * kWarp + threadIdx.x; }
__device__ bool IsInRow(int pack) { return (pack * kRowLanes + LaneOfRow()) * kCount < kColumns; }

// Returns the address of this lane's pack `pack` in the row that begins at `row`.
template <typename Row>
__device__ Row* PackAt(Row* row, int pack) {
  return row + (pack * kRowLanes + LaneOfRow()) * kCount;
}
__device__ RowPack Get(const T* row, int pack) {
  return *reinterpret_cast<const RowPack*>(PackAt(row, pack));
}

// Adds the partial sums `mine` of all threads of the block, and writes the results to the block's
// row of `sums` [gridDim.x, kColumns]. The rows that a block processes at once take turns, so that
// the order of the additions is fixed.
__device__ void WriteSumsOfBlock(const float (&mine)[kPacks][kCount], float* sums) {
  __shared__ float all[kPaddedColumns];
  __syncthreads();  // all threads have read the last call's sums
  for (int turn = 0; turn < kBlockRows; ++turn) {
    if (threadIdx.y / kRowWarps == turn) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        float* const sum = PackAt(all, p);
        for (int i = 0; i < kCount; ++i) sum[i] = (turn == 0 ? 0 : sum[i]) + mine[p][i];
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.y * kWarp + threadIdx.x; i < kColumns; i += kWarp * kNormWarps) {
    sums[blockIdx.x * static_cast<long long>(kColumns) + i] = all[i];
  }
}

