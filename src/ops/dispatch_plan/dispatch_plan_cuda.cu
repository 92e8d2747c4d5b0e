// Three kernels. A warp counts its chunk of the group's choices per local expert (and per destination); a block per column
// of these counts turns them into prefix sums; a warp gives its chunk's choices their rows, which follow from the sums and
// from the places within the chunk.
#include "ops/dispatch_plan/dispatch_plan_bodies.h"
#include "ops/prefix.cuh"

namespace moesaic::ops {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;  // of the first and the last kernel
constexpr int kScanThreads = 256;

/// Per expert: its local number when it lives here, else -1 - its rank.
struct Placement {
  int16_t at[kMostPlanned];
};

struct Tables {
  const int32_t* indices;
  int32_t *offsets, *row_recv, *row_slot, *slot_row, *overflow;
  int32_t *own_ends, *own_token;                                                // null when not wanted
  int32_t *send_token, *send_offsets, *recv_offsets, *recv_token, *token_send;  // null without a2a
  // Working memory. Experts' columns go from chunk to chunk in ring order of the sources, ranks' columns in group order.
  int32_t *expert_counts, *expert_sums;  // [E_local, chunks]
  int32_t *rows, *rows_asked;            // [E_local] within the receive buffer's bound; without it
  int32_t *rank_counts, *rank_sums;      // [e, chunks], [e, chunks + 1]: tokens that go to each rank
  int num_experts, num_local_experts, e, rank, tokens_per_rank, top_k, max_rows, max_recv;
  int chunk_tokens, chunks_per_rank, num_chunks;
  bool a2a;

  __device__ int num_columns() const { return num_local_experts + (a2a ? e : 0); }
  /// Place of a chunk when the sources come in ring order from this rank on.
  __device__ int ring_place(int chunk) const {
    const int place = chunk - rank * chunks_per_rank;
    return place < 0 ? place + num_chunks : place;
  }
  __device__ int chunk_at(int ring_place) const {
    const int chunk = ring_place + rank * chunks_per_rank;
    return chunk < num_chunks ? chunk : chunk - num_chunks;
  }
  /// First group token of a chunk, and the number of its choices.
  __device__ int first_token(int chunk) const {
    return chunk / chunks_per_rank * tokens_per_rank + chunk % chunks_per_rank * chunk_tokens;
  }
  __device__ int num_slots(int chunk) const {
    const int before = chunk % chunks_per_rank * chunk_tokens;
    return max(0, min(chunk_tokens, tokens_per_rank - before)) * top_k;
  }
};

/// One (token, k).
struct Choice {
  int local = -1;      // number of the expert here, -1 when elsewhere or dropped
  int to = -1;         // its rank, -1 when dropped
  bool first = false;  // with a2a: the first choice of the token that goes to that rank
};

__device__ void load_placement(const Placement& from, int num_experts, int16_t* place) {
  for (int x = static_cast<int>(threadIdx.x); x < num_experts; x += static_cast<int>(blockDim.x))
    place[x] = from.at[x];
}

__device__ Choice choice_at(const Tables& t, const int16_t* place, int slot) {
  const auto rank_of = [&](int32_t expert) {
    if (expert < 0 || expert >= t.num_experts) return -1;
    return place[expert] >= 0 ? t.rank : -1 - place[expert];
  };
  const int32_t expert = __ldg(t.indices + slot);
  Choice c;
  c.to = rank_of(expert);
  if (c.to < 0) return c;
  if (place[expert] >= 0) c.local = place[expert];
  c.first = t.a2a;
  if (t.a2a)
    for (int back = slot % t.top_k; back > 0; --back)
      if (rank_of(__ldg(t.indices + slot - back)) == c.to) c.first = false;
  return c;
}

__global__ void __launch_bounds__(kThreads)
    count_kernel(const Tables t, const __grid_constant__ Placement placement) {
  extern __shared__ int32_t shared[];  // [kWarps, columns]
  __shared__ int16_t place[kMostPlanned];
  const int columns = t.num_columns(), warp = static_cast<int>(threadIdx.x) / 32;
  load_placement(placement, t.num_experts, place);
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * columns; i += kThreads) shared[i] = 0;
  __syncthreads();
  const int first_chunk = static_cast<int>(blockIdx.x) * kWarps, chunk = first_chunk + warp;
  int32_t* counts = shared + warp * columns;
  if (chunk < t.num_chunks) {
    const int first_slot = t.first_token(chunk) * t.top_k, slots = t.num_slots(chunk);
    for (int i = lane_index(); i < slots; i += 32) {
      const Choice c = choice_at(t, place, first_slot + i);
      if (c.local >= 0) atomicAdd(counts + c.local, 1);
      if (c.first) atomicAdd(counts + t.num_local_experts + c.to, 1);
    }
  }
  __syncthreads();
  // Neighbouring threads write the counts of neighbouring chunks.
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * columns; i += kThreads) {
    const int column = i / kWarps, of = first_chunk + i % kWarps;
    if (of >= t.num_chunks) break;
    const int32_t count = shared[i % kWarps * columns + column];
    if (column < t.num_local_experts)
      t.expert_counts[int64_t{column} * t.num_chunks + t.ring_place(of)] = count;
    else
      t.rank_counts[int64_t{column - t.num_local_experts} * t.num_chunks + of] = count;
  }
}

/// Where the receive buffer is full: `room` of the tokens that come from `chunk` still have a place, those of later chunks
/// (in group order) have none. chunk: num_chunks when all have one.
struct Cut {
  int chunk, room;
};

/// Every thread of a scan block gets it.
__device__ Cut find_cut(const Tables& t) {
  __shared__ Cut cut;
  if (threadIdx.x == 0) cut = {t.num_chunks, 0};
  __syncthreads();
  const int32_t* counts = t.rank_counts + int64_t{t.rank} * t.num_chunks;
  for_prefixes<kScanThreads>(
      t.num_chunks, [&](int64_t chunk) { return counts[chunk]; },
      [&](int64_t chunk, int32_t count, int32_t before) {
        if (before <= t.max_recv && before + count > t.max_recv)
          cut = {static_cast<int>(chunk), t.max_recv - before};
      });
  __syncthreads();
  return cut;
}

/// The choices of a local expert in the chunk of the cut, of tokens that have a place. One warp calls it.
__device__ int32_t count_in_cut(const Tables& t, const int16_t* place, const Cut& cut, int local) {
  const int first_slot = t.first_token(cut.chunk) * t.top_k, slots = t.num_slots(cut.chunk);
  int32_t tokens = 0, count = 0;
  for (int i = lane_index(); i - lane_index() < slots; i += 32) {
    const Choice c = i < slots ? choice_at(t, place, first_slot + i) : Choice();
    const unsigned firsts = __ballot_sync(0xffffffffu, c.first && c.local >= 0);
    // A token's first choice here lies before its others, so the tokens up to this choice are those up to its token.
    const int up_to_this = tokens + __popc(firsts & (lanes_before() << 1 | 1));
    count += __popc(__ballot_sync(0xffffffffu, c.local == local && up_to_this <= cut.room));
    tokens += __popc(firsts);
  }
  return count;
}

/// A block per column.
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const Tables t, const __grid_constant__ Placement placement) {
  __shared__ int16_t place[kMostPlanned];
  __shared__ int32_t in_cut;
  const int column = static_cast<int>(blockIdx.x), chunks = t.num_chunks;
  if (column >= t.num_local_experts) {
    const int to = column - t.num_local_experts;
    const int32_t* counts = t.rank_counts + int64_t{to} * chunks;
    int32_t* sums = t.rank_sums + int64_t{to} * (chunks + 1);
    const int32_t total = for_prefixes<kScanThreads>(
        chunks, [&](int64_t chunk) { return counts[chunk]; },
        [&](int64_t chunk, int32_t, int32_t before) { sums[chunk] = before; });
    if (threadIdx.x == 0) sums[chunks] = total;
    return;
  }
  const Cut cut = t.a2a ? find_cut(t) : Cut{chunks, 0};
  if (cut.chunk < chunks) {
    load_placement(placement, t.num_experts, place);
    __syncthreads();
    if (threadIdx.x < 32) {
      const int32_t count = count_in_cut(t, place, cut, column);
      if (threadIdx.x == 0) in_cut = count;
    }
    __syncthreads();
  }
  const int32_t* counts = t.expert_counts + int64_t{column} * chunks;
  int32_t* sums = t.expert_sums + int64_t{column} * chunks;
  int32_t asked = 0, all_asked = 0;
  const int32_t total = for_prefixes<kScanThreads>(
      chunks,
      [&](int64_t ring_place) {
        const int chunk = t.chunk_at(static_cast<int>(ring_place));
        asked += counts[ring_place];
        if (chunk == cut.chunk) return in_cut;
        return chunk < cut.chunk ? counts[ring_place] : 0;
      },
      [&](int64_t ring_place, int32_t, int32_t before) { sums[ring_place] = before; });
  block_prefix<kScanThreads>(asked, all_asked);
  if (threadIdx.x == 0) {
    t.rows[column] = total;
    t.rows_asked[column] = all_asked;
  }
}

/// A warp's counters: the next row of each local expert; rows already sent to each rank.
struct Counters {
  int32_t *next, *sent;
};

/// Offsets per expert, written by block 0, and each warp's first row of each expert. Every thread calls it.
__device__ void start_rows(const Tables& t, int first_chunk, int32_t* next) {
  const int32_t total = for_prefixes<kThreads>(
      t.num_local_experts, [&](int64_t x) { return t.rows[x]; },
      [&](int64_t x, int32_t, int32_t before) {
        for (int w = 0; w < kWarps && first_chunk + w < t.num_chunks; ++w)
          next[w * t.num_local_experts + x] =
              before + t.expert_sums[x * t.num_chunks + t.ring_place(first_chunk + w)];
        if (blockIdx.x != 0) return;
        t.offsets[x] = min(before, t.max_rows);
        if (t.own_ends == nullptr) return;
        // In ring order this rank's own chunks come first.
        const int32_t own = t.e > 1 ? t.expert_sums[x * t.num_chunks + t.chunks_per_rank] : t.rows[x];
        t.own_ends[x] = min(before + own, t.max_rows);
      });
  if (blockIdx.x != 0) return;
  int32_t asked = 0, all_asked = 0;
  for (int x = static_cast<int>(threadIdx.x); x < t.num_local_experts; x += kThreads)
    asked += t.rows_asked[x];
  block_prefix<kThreads>(asked, all_asked);
  if (threadIdx.x != 0) return;
  t.offsets[t.num_local_experts] = min(total, t.max_rows);
  const bool recv_full =
      t.a2a && t.rank_sums[int64_t{t.rank} * (t.num_chunks + 1) + t.num_chunks] > t.max_recv;
  if (all_asked > t.max_rows || recv_full) *t.overflow = max(*t.overflow, all_asked);
}

/// Offsets per destination, written by block 0, and what each warp's tokens follow. Every thread calls it.
__device__ void start_sends(const Tables& t, int first_chunk, int32_t* send_offset, int32_t* sent) {
  const int first = t.rank * t.chunks_per_rank;  // this rank's first chunk
  const int32_t total = for_prefixes<kThreads>(
      t.e,
      [&](int64_t to) {
        const int32_t* sums = t.rank_sums + to * (t.num_chunks + 1);
        const int32_t before = sums[first], mine = sums[first + t.chunks_per_rank] - before;
        return min(mine,
                   max(0, t.max_recv - before));  // what earlier sources leave of the destination's buffer
      },
      [&](int64_t to, int32_t, int32_t before) {
        const int32_t* sums = t.rank_sums + to * (t.num_chunks + 1);
        for (int w = 0; w < kWarps && first_chunk + w < t.num_chunks; ++w)
          sent[w * t.e + to] = sums[first_chunk + w] - sums[first];
        send_offset[to] = before;
        if (blockIdx.x == 0) t.send_offsets[to] = before;
      });
  if (threadIdx.x == 0) send_offset[t.e] = total;
  if (blockIdx.x != 0) return;
  if (threadIdx.x == 0) t.send_offsets[t.e] = total;
  const int32_t* received = t.rank_sums + int64_t{t.rank} * (t.num_chunks + 1);
  for (int p = static_cast<int>(threadIdx.x); p <= t.e; p += kThreads)
    t.recv_offsets[p] = min(received[p * t.chunks_per_rank], t.max_recv);
}

/// Sends of one step of a warp over this rank's own tokens.
__device__ void write_send(const Tables& t, const Choice& c, int token, const int32_t* send_offset,
                           int32_t* sent) {
  const int to = c.first ? c.to : -1, local_token = token - t.rank * t.tokens_per_rank;
  const int32_t place = take_place(sent, 1, to);
  if (to < 0 || place >= send_offset[to + 1] - send_offset[to]) return;
  const int32_t row = send_offset[to] + place;
  t.send_token[row] = local_token;
  t.token_send[int64_t{local_token} * t.e + to] = row;
}

__device__ void write_chunk(const Tables& t, const int16_t* place, int chunk, const int32_t* send_offset,
                            const Counters& counters) {
  const int first_token = t.first_token(chunk), first_slot = first_token * t.top_k,
            slots = t.num_slots(chunk);
  const bool own = chunk / t.chunks_per_rank == t.rank, sends = t.a2a && own;
  if (sends) {
    const int64_t begin = int64_t{first_token - t.rank * t.tokens_per_rank} * t.e;
    for (int i = lane_index(); i < slots / t.top_k * t.e; i += 32) t.token_send[begin + i] = -1;
  }
  int received = t.a2a ? t.rank_sums[int64_t{t.rank} * (t.num_chunks + 1) + chunk] : 0;
  __syncwarp();
  for (int i = lane_index(); i - lane_index() < slots; i += 32) {
    const int slot = first_slot + i, token = slot / t.top_k;
    const Choice c = i < slots ? choice_at(t, place, slot) : Choice();
    int recv = token;
    if (t.a2a) {
      const bool arrives = c.first && c.local >= 0;
      const unsigned arriving = __ballot_sync(0xffffffffu, arrives);
      // The last token to arrive up to here is this one, when it comes here at all.
      recv = received + __popc(arriving & (lanes_before() << 1 | 1)) - 1;
      received += __popc(arriving);
      if (arrives && recv < t.max_recv) t.recv_token[recv] = token;
    }
    const int local = recv < t.max_recv ? c.local : -1;
    const int32_t row = take_place(counters.next, 1, local);
    const bool written = local >= 0 && row < t.max_rows;
    if (written) {
      t.row_recv[row] = recv;
      t.row_slot[row] = slot;
      if (own && t.own_token != nullptr) t.own_token[row] = token - t.rank * t.tokens_per_rank;
    }
    if (i < slots) t.slot_row[slot] = written ? row : -1;
    if (sends) write_send(t, c, token, send_offset, counters.sent);
  }
}

__global__ void __launch_bounds__(kThreads)
    write_kernel(const Tables t, const __grid_constant__ Placement placement) {
  extern __shared__ int32_t shared[];  // [kWarps, E_local], and with a2a [kWarps, e], [e + 1]
  __shared__ int16_t place[kMostPlanned];
  int32_t *next = shared, *sent = next + kWarps * t.num_local_experts, *send_offset = sent + kWarps * t.e;
  const int first_chunk = static_cast<int>(blockIdx.x) * kWarps, warp = static_cast<int>(threadIdx.x) / 32;
  load_placement(placement, t.num_experts, place);
  start_rows(t, first_chunk, next);
  if (t.a2a) start_sends(t, first_chunk, send_offset, sent);
  __syncthreads();
  if (first_chunk + warp < t.num_chunks)
    write_chunk(t, place, first_chunk + warp, send_offset,
                {next + warp * t.num_local_experts, sent + warp * t.e});
}

Tables tables_of(const OpContext& c, const DispatchPlan& args) {
  const Shape& indices = c.shape(args.indices);
  const int64_t tokens_per_rank = indices.rows() / args.e;
  const PlanChunks chunks = plan_chunks(args.e, tokens_per_rank, indices[-1]);
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  const bool a2a = static_cast<bool>(args.recv_token);
  Tables t{};
  t.indices = c.in<int32_t>(args.indices);
  t.offsets = c.out<int32_t>(args.offsets);
  t.row_recv = c.out<int32_t>(args.row_recv);
  t.row_slot = c.out<int32_t>(args.row_slot);
  t.slot_row = c.out<int32_t>(args.slot_row);
  t.overflow = c.inout<int32_t>(args.overflow);
  t.own_ends = out_or_null<int32_t>(c, args.own_ends);
  t.own_token = out_or_null<int32_t>(c, args.own_token);
  t.send_token = out_or_null<int32_t>(c, args.send_token);
  t.send_offsets = out_or_null<int32_t>(c, args.send_offsets);
  t.recv_offsets = out_or_null<int32_t>(c, args.recv_offsets);
  t.recv_token = out_or_null<int32_t>(c, args.recv_token);
  t.token_send = out_or_null<int32_t>(c, args.token_send);
  t.expert_counts = reinterpret_cast<int32_t*>(c.out_bytes(args.scratch));
  t.expert_sums = t.expert_counts + args.num_local_experts * chunks.count;
  t.rows = t.expert_sums + args.num_local_experts * chunks.count;
  t.rows_asked = t.rows + args.num_local_experts;
  t.rank_counts = t.rows_asked + args.num_local_experts;
  t.rank_sums = t.rank_counts + args.e * chunks.count;
  t.num_experts = number(static_cast<int64_t>(args.owner.size()));
  t.num_local_experts = number(args.num_local_experts);
  t.e = number(args.e);
  t.rank = number(args.rank);
  t.tokens_per_rank = number(tokens_per_rank);
  t.top_k = number(indices[-1]);
  t.max_rows = number(c.shape(args.row_recv).numel());
  t.max_recv = number(a2a ? c.shape(args.recv_token).numel() : indices.rows());
  t.chunk_tokens = number(chunks.tokens);
  t.chunks_per_rank = number(chunks.per_rank);
  t.num_chunks = number(chunks.count);
  t.a2a = a2a;
  return t;
}

}  // namespace

void dispatch_plan_cuda(const OpContext& c, const DispatchPlan& args) {
  const Tables t = tables_of(c, args);
  Placement placement{};
  for (size_t x = 0; x < args.owner.size(); ++x)
    placement.at[x] = static_cast<int16_t>(args.owner[x] == args.rank ? args.local[x] : -1 - args.owner[x]);
  const int ranks = t.a2a ? t.e : 0;
  const auto columns = static_cast<size_t>(t.num_local_experts + ranks);
  const auto blocks = static_cast<unsigned>(ceil_div(t.num_chunks, kWarps));
  count_kernel<<<blocks, kThreads, kWarps * columns * 4, cuda_stream(c)>>>(t, placement);
  scan_kernel<<<static_cast<unsigned>(columns), kScanThreads, 0, cuda_stream(c)>>>(t, placement);
  const size_t sends = t.a2a ? static_cast<size_t>(t.e + 1) : 0;
  write_kernel<<<blocks, kThreads, (kWarps * columns + sends) * 4, cuda_stream(c)>>>(t, placement);
}

}  // namespace moesaic::ops
