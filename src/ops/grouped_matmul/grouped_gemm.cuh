#pragma once
// CUTLASS's grouped GEMM on Hopper: persistent blocks in clusters of two walk the tiles of all groups, whose extents and
// addresses they read from device memory; loads and stores by TMA through a tensor map per block, rewritten when the group
// changes. A tile that reaches beyond its group is cut by the tensor map: rows outside are read as zero and not written.
// A .cu file per kind of product: each takes a minute or more to compile.
#include <array>
#include <bit>

#include "base/error.h"
#include "cute/tensor.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "ops/grouped_matmul/grouped_gemm_cuda.h"

namespace moesaic::ops {

using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
/// A number that is known when compiling, for the extents of tiles.
template <int N>
using Extent = cute::Int<N>;

/// Two blocks of a cluster share operands. A cluster is run whole, so a group's tiles are rounded up to two in its direction:
/// side by side fits groups of any number of rows, one above the other an odd number of columns of tiles.
using SideBySide = cute::Shape<Extent<1>, Extent<2>, Extent<1>>;
using OneAboveOther = cute::Shape<Extent<2>, Extent<1>, Extent<1>>;

/// The two consumer warpgroups of a block make a tile each, one multiplies while the other stores.
template <class InCluster>
struct PingPong {
  using Tile = cute::Shape<Extent<128>, Extent<128>, Extent<64>>;
  using Cluster = InCluster;
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
  using StoredRows = Extent<64>;  // of a warpgroup at a time
};
/// The warpgroups share a tile, and with its width the bytes that each multiplication needs.
struct Wide {
  using Tile = cute::Shape<Extent<128>, Extent<256>, Extent<64>>;
  using Cluster = SideBySide;
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
  using StoredRows = Extent<128>;
};

/// Calls run(way) with the way that is fastest at the power limit (docs/results/gpu.md) for products of so many columns, each a
/// sum over `sum_length`: the shorter, the more storing a tile counts.
template <class F>
void with_best_way(int64_t columns, double sum_length, const F& run) {
  constexpr double kLong = 4096;
  constexpr int64_t kPingPongColumns = 128;
  if (sum_length >= kLong) return run(Wide{});
  if (ceil_div(columns, kPingPongColumns) % 2 == 0) return run(PingPong<SideBySide>{});
  run(PingPong<OneAboveOther>{});
}

/// Bytes of shared memory that a block of Hopper may have.
inline constexpr int kMaxSharedMemory = 227 << 10;

/// out = a b with a [M, K] and b [K, N] in BF16, stored as LayoutA and LayoutB, out [M, N] row-major, FP32 accumulation.
/// Source: what is added to the product, an array of out's type; void: nothing. EpilogueTile: the piece of a tile that is
/// stored (and loaded) at a time. Way: one of the above.
template <class LayoutA, class LayoutB, class Source, class Out, class EpilogueTile, class Way>
struct GroupedGemm {
  using Element = cutlass::bfloat16_t;
  using Tile = typename Way::Tile;
  using Cluster = typename Way::Cluster;
  using Problem = cute::Shape<int, int, int>;
  static constexpr int kAlign = 8, kAlignOut = 16 / sizeof(Out);

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, EpilogueTile, float, float, Source,
      RowMajor*, kAlignOut, Out, RowMajor*, kAlignOut, typename Way::Epilogue>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA*, kAlign, Element, LayoutB*,
      kAlign, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
      typename Way::Mainloop>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Problem>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Order = typename Kernel::TileScheduler::RasterOrderOptions;

  // The stages of 32 or 48 KiB that fit beside the epilogue; with three, tensor cores wait for memory.
  static_assert(Mainloop::DispatchPolicy::Stages >= 4 && Kernel::SharedStorageSize <= kMaxSharedMemory);
  // The table (GroupTable) is written as plain numbers.
  static_assert(sizeof(typename Kernel::InternalStrideA) == 8 &&
                sizeof(typename Kernel::InternalStrideB) == 8 &&
                sizeof(typename Kernel::InternalStrideD) == 8);
  static_assert(std::bit_cast<std::array<int, 3>>(Problem{1, 2, 3}) == std::array{1, 2, 3});

  /// `accumulate`: needs a Source. `order`: which way neighbouring blocks lie; along the side of out that fits into L2 together with its operand.
  static void run(cudaStream_t stream, const GroupedScratch& scratch, Order order, bool accumulate = false) {
    const GroupTable& table = scratch.table;
    typename Gemm::Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    args.problem_shape = {static_cast<int32_t>(table.groups), reinterpret_cast<Problem*>(table.extents),
                          nullptr};
    args.mainloop = {
        reinterpret_cast<const Element**>(table.a), strides<typename Kernel::StrideA>(table.a_stride),
        reinterpret_cast<const Element**>(table.b), strides<typename Kernel::StrideB>(table.b_stride)};
    args.epilogue.thread.alpha = 1;
    args.epilogue.thread.beta = accumulate ? 1 : 0;  // with 0 the source is not read
    args.epilogue.ptr_D = reinterpret_cast<Out**>(table.out);
    args.epilogue.dD = strides<typename Kernel::StrideD>(table.out_stride);
    args.epilogue.dC = strides<typename Kernel::StrideC>(table.out_stride);
    if constexpr (!std::is_void_v<Source>)
      args.epilogue.ptr_C = const_cast<const Source**>(reinterpret_cast<Source**>(table.out));
    args.hw_info.sm_count = num_multiprocessors();
    args.scheduler.raster_order = order;
    MOESAIC_CHECK(Gemm::get_workspace_size(args) <= static_cast<size_t>(kTensorMapBytes),
                  "{} multiprocessors", args.hw_info.sm_count);
    Gemm gemm;
    check(gemm.initialize(args, scratch.tensor_maps, stream), "preparing");
    check(gemm.run(stream), "launching");
  }

 private:
  template <class Stride>
  static Stride strides(int64_t* array) {
    return reinterpret_cast<Stride>(array);
  }

  static int num_multiprocessors() {
    thread_local const int count = [] {
      int gpu = 0;
      cudaGetDevice(&gpu);
      return cutlass::KernelHardwareInfo::query_device_multiprocessor_count(gpu);
    }();
    return count;
  }

  static void check(cutlass::Status status, const char* what) {
    require<DeviceError>(status == cutlass::Status::kSuccess, "{} a grouped product failed: CUTLASS says {}",
                         what, cutlassGetStatusString(status));
  }
};

}  // namespace moesaic::ops
