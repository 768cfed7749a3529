// Code shared by the normalizations of one width and one type of element, which are defined at
// compile time: DSLAUNCH_COLUMNS, DSLAUNCH_ELEMENT, and DSLAUNCH_WARPS, the number of warps that
// process a row. The row's elements stay in their registers.

using T = DSLAUNCH_ELEMENT;
constexpr int kColumns = DSLAUNCH_COLUMNS;
constexpr int kRowWarps = DSLAUNCH_WARPS;
constexpr int kNormWarps = 8;  // per block; must equal the value in kernel_calls.cc
constexpr int kBlockRows = kNormWarps / kRowWarps;  // rows that a block processes at a time
constexpr int kRowLanes = kRowWarps * kWarp;
constexpr int kCount = 16 / sizeof(T);
constexpr int kPacks = (kColumns + kRowLanes * kCount - 1) / (kRowLanes * kCount);  // per lane
constexpr int kPaddedColumns = kPacks * kRowLanes * kCount;

using RowPack = Pack<T, kCount>;

__device__ int LaneOfRow() { return threadIdx.y % kRowWarps * kWarp + threadIdx.x; }
__device__ bool IsInRow(int pack) { return (pack * kRowLanes + LaneOfRow()) * kCount < kColumns; }

// Returns the pack number `pack` of this lane in a row that begins at `row`.
template <typename Row>
__device__ Row* PackAt(Row* row, int pack) {
  return row + (pack * kRowLanes + LaneOfRow()) * kCount;
}
__device__ RowPack Get(const T* row, int pack) {
  return *reinterpret_cast<const RowPack*>(PackAt(row, pack));
}

// Adds `mine`, sums over some rows, for all threads of the block, and writes the result to its row of
// `sums` [gridDim.x, kColumns]. The rows of a block take turns, so that the order of additions is
// fixed.
__device__ void WriteSumsOfBlock(const float (&mine)[kPacks][kCount], float* sums) {
  __shared__ float all[kPaddedColumns];
  __syncthreads();  // the sums of the last call were read
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

